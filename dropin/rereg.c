/* ibv_rereg_mr: another domain, other rights or other memory under the same keys. */
#include "memory.h"

/* What the flags name is there to be used. */
static bool complete(const struct ibv_mr *mr, int flags, const struct ibv_pd *pd, const void *addr, size_t length)
{
	return flags && !(flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) && (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION) || (addr && length)) &&
	       (!(flags & IBV_REREG_MR_CHANGE_PD) || (pd && pd->context == mr->context));
}

/* The call returns 0 or an enum ibv_rereg_mr_err_code, with errno. After any error the region is as it was, since the
 * device changes all or nothing; only when the daemon is gone it is no more. */
SN_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct sn_context *c = sn_context_of(mr->context);
	struct softnic_ctl_rereg_mr q = { .region = mr->handle, .flags = (uint32_t)flags };
	struct softnic_ctl_reg_mr_reply r;
	uint32_t rights = flags & IBV_REREG_MR_CHANGE_ACCESS ? (uint32_t)access : sn_mr_of(mr)->access;
	int error;

	if (!complete(mr, flags, pd, addr, length)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	q.mr.access = rights;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		q.mr.pd = pd->handle;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		q.mr.addr = (uintptr_t)addr;
		q.mr.length = length;
		q.mr.base = rights & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
		error = sn_mr_call(c, &q, &r);
	} else {
		error = sn_call(c, SOFTNIC_CTL_OP_REREG_MR, &q, sizeof(q), &r, sizeof(r));
	}
	if (error) {
		errno = error;
		return error == EIO ? IBV_REREG_MR_ERR_CMD : IBV_REREG_MR_ERR_INPUT;
	}
	sn_mr_of(mr)->access = rights;
	mr->lkey = r.lkey;
	mr->rkey = r.rkey;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		sn_mr_leave(sn_mr_of(mr));
		mr->addr = addr;
		mr->length = length;
	}
	return 0;
}
