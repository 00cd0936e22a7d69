/* The public verbs interface: the structures that applications were compiled with. */
#ifndef SOFTNIC_IBV_H
#define SOFTNIC_IBV_H

#include "verbs_abi.h"

#endif
