/* Multicast groups of datagram queue pairs. The group's LID is InfiniBand's and not looked at. */
#include "softnic.h"

static int change(struct ibv_qp *qp, uint16_t op, uint32_t flags, const union ibv_gid *gid)
{
	struct softnic_ctl_attach_mcast m = { .qp = qp->handle, .flags = flags };

	memcpy(m.gid, gid->raw, sizeof(m.gid));
	return sn_call(sn_context_of(qp->context), op, &m, sizeof(m), NULL, 0);
}

/* As on Linux, a queue pair hears what it sends to a group that it is attached to, unless it was made with
 * IBV_QP_CREATE_BLOCK_SELF_MCAST_LB. */
SN_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return change(qp, SOFTNIC_CTL_OP_ATTACH_MCAST, SOFTNIC_CTL_MCAST_OWN, gid);
}

SN_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return change(qp, SOFTNIC_CTL_OP_DETACH_MCAST, 0, gid);
}
