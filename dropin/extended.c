/* Smaller verbs of the later releases, and what they ask of a device that this one cannot give. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "softnic.h"

#ifndef MADV_POPULATE_READ /* of Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* The clock of completion timestamps as it is now: nanoseconds of the host's CLOCK_MONOTONIC. comp_mask says what was asked
 * for, and what is told. */
static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	(void)context;
	values->comp_mask = asked & IBV_VALUES_MASK_RAW_CLOCK;
	if (values->comp_mask)
		clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
	return 0;
}

/* Pages that a later access would have to wait for are made present now, in the process that owns them, whether the caller
 * waits for that or not. Where that cannot be, the access brings them. */
static void prefetch(const struct ibv_sge *sge, int how)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)sge->addr & ~(page - 1);
	uintptr_t end;

	if (sge->length && !__builtin_add_overflow((uintptr_t)sge->addr, sge->length + page - 1, &end))
		madvise((void *)begin, (end & ~(page - 1)) - begin, how);
}

/* Entries name memory by the addresses that it was registered with, ibv_reg_mr's own; those of a region that
 * has others (ibv_reg_mr_iova) are most likely nowhere, which is no error: it is advice. */
static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n)
{
	(void)pd;
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH)
		return EINVAL;
	switch (advice) {
	case IBV_ADVISE_MR_ADVICE_PREFETCH:
	case IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE:
		for (uint32_t i = 0; i < n; i++)
			prefetch(&list[i], advice == IBV_ADVISE_MR_ADVICE_PREFETCH ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
		return 0;
	case IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		return 0; /* there is no table of pages to fill */
	}
	return EOPNOTSUPP;
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
	c->verbs.advise_mr = advise_mr;
	sn_install_dm(c);
	sn_install_domain(c);
	sn_install_resize(c);
}
