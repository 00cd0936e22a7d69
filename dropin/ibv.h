/* The public verbs interface: the structures that applications were compiled with.
 *
 * The macros of the public header turn calls into calls of other symbols. The library defines these symbols, so here they
 * are names again. */
#ifndef SOFTNIC_IBV_H
#define SOFTNIC_IBV_H

#include <infiniband/verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

#endif
