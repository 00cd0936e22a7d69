/* LIDs, for programs that know no other address, where the user asks for them: see lid.c. */
#ifndef SOFTNIC_LID_H
#define SOFTNIC_LID_H

#include "softnic.h"

/* The LID of a port whose GID table has so many entries; else 0. */
uint16_t sn_lid(struct ibv_context *context, uint8_t port, int table);

/* Whether an address has a GRH, or gets one now that leads to its DLID. */
bool sn_lid_route(struct ibv_context *context, const struct ibv_ah_attr *attr, uint8_t dgid[16], uint32_t *sgid_index);

#endif
