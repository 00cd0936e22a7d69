/* Smaller verbs of the later releases, and what they ask of a device that this one cannot give. */
#include <time.h>

#include "softnic.h"

/* The clock of completion timestamps as it is now: nanoseconds of the host's CLOCK_MONOTONIC. */
static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	(void)context;
	values->comp_mask = 0;
	if (!asked || (asked & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK))
		return EOPNOTSUPP;
	clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

/* Enhanced connection establishment: vendors agree on options. This device has none, so whatever a peer offers is
 * accepted, and nothing is what we offer. */
SN_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	return ece->comp_mask ? EINVAL : 0;
}

SN_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	*ece = (struct ibv_ece){ 0 };
	return 0;
}

/* A session with the daemon belongs to the process that opened it: the objects of another cannot be named in it. */
SN_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	(void)cmd_fd;
	errno = EOPNOTSUPP;
	return NULL;
}

SN_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	(void)context, (void)pd_handle;
	errno = EOPNOTSUPP;
	return NULL;
}

SN_EXPORT void ibv_unimport_pd(struct ibv_pd *pd) { (void)pd; }

SN_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	(void)pd, (void)mr_handle;
	errno = EOPNOTSUPP;
	return NULL;
}

SN_EXPORT void ibv_unimport_mr(struct ibv_mr *mr) { (void)mr; }

SN_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	(void)context, (void)dm_handle;
	errno = EOPNOTSUPP;
	return NULL;
}

SN_EXPORT void ibv_unimport_dm(struct ibv_dm *dm) { (void)dm; }

void sn_install_extended(struct sn_context *c)
{
	c->verbs.query_rt_values = query_rt_values;
	sn_install_domain(c);
	sn_install_resize(c);
}
