/* Posting send and receive requests. */
#include "softnic.h"

#include <unistd.h>

#include "ring.h"

/* Operations and flags in the ring are those of the public interface. */
_Static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_WRITE_WITH_IMM == 1 && IBV_WR_SEND == 2 && IBV_WR_SEND_WITH_IMM == 3 &&
	       IBV_WR_RDMA_READ == 4 && IBV_WR_ATOMIC_CMP_AND_SWP == 5 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6 && IBV_WR_LOCAL_INV == 7 &&
	       IBV_WR_BIND_MW == 8 && IBV_WR_SEND_WITH_INV == 9 && IBV_WR_ATOMIC_WRITE == 15, "operations");
_Static_assert(IBV_SEND_FENCE == 1 && IBV_SEND_SIGNALED == 2 && IBV_SEND_SOLICITED == 4 && IBV_SEND_INLINE == 8, "flags");
_Static_assert(sizeof(struct ibv_sge) == SOFTNIC_SGE_SIZE && offsetof(struct ibv_sge, addr) == 0 && offsetof(struct ibv_sge, length) == 8 &&
	       offsetof(struct ibv_sge, lkey) == 12, "a list is copied as it is");

#define FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

void sn_bell_wake(struct sn_context *c)
{
	static const uint64_t one = 1;
	int saved = errno;

	while (write(c->bell_fd, &one, sizeof one) < 0 && errno == EINTR)
		;
	errno = saved; /* a full counter is rung already */
}

/* What the operation wants beside list or data. */
static inline int fill(const struct sn_qp *q, const struct ibv_send_wr *wr, struct softnic_send_wqe *w)
{
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
		w->imm = __builtin_bswap32(wr->imm_data);
		break;
	case IBV_WR_SEND:
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		w->imm = wr->invalidate_rkey;
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		w->imm = __builtin_bswap32(wr->imm_data);
		/* fall through */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		w->operand = wr->wr.atomic.swap;
		w->compare = wr->wr.atomic.compare_add;
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->operand = wr->wr.atomic.compare_add;
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		break;
	default:
		return EINVAL;
	}
	if (q->ex.qp_base.qp_type == IBV_QPT_UD) {
		/* Other operations have something else in the place of the address: the device refuses them. */
		if (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM) {
			if (SN_UNLIKELY(!wr->wr.ud.ah || wr->wr.ud.ah->context != q->ex.qp_base.context))
				return EINVAL;
			w->operand = (uint64_t)wr->wr.ud.remote_qpn << 32 | wr->wr.ud.ah->handle;
			w->compare = wr->wr.ud.remote_qkey;
		}
	} else if (q->ex.qp_base.qp_type == IBV_QPT_XRC_SEND) {
		w->srqn = wr->qp_type.xrc.remote_srqn;
	}
	return 0;
}

/* Copies the data of an inline request behind the fixed part. */
static inline int put_inline(const struct sn_qp *q, const struct ibv_send_wr *wr, struct softnic_send_wqe *w, uint8_t *at)
{
	uint32_t total = 0;

	if (SN_UNLIKELY(wr->num_sge < 0))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (SN_UNLIKELY(s->length > q->max_inline - total))
			return EINVAL;
		if (s->length)
			memcpy(at + total, (const void *)(uintptr_t)s->addr, s->length);
		total += s->length;
	}
	w->count = (uint16_t)total;
	return 0;
}

static inline int put_send(struct sn_qp *q, const struct ibv_send_wr *wr)
{
	uint8_t *slot = sn_send_slot(q);
	struct softnic_send_wqe w = { .wr_id = wr->wr_id, .opcode = (uint8_t)wr->opcode, .flags = (uint8_t)wr->send_flags };
	bool bind = wr->opcode == IBV_WR_BIND_MW;
	int err = 0;

	if (SN_UNLIKELY(!slot))
		return ENOMEM;
	if (SN_UNLIKELY(wr->send_flags & ~(unsigned)FLAGS))
		return EINVAL;
	if (SN_UNLIKELY(bind))
		err = sn_bind_fill(q, wr, &w);
	else
		err = fill(q, wr, &w);
	if (SN_UNLIKELY(err))
		return err;
	if (wr->send_flags & IBV_SEND_INLINE && !bind) {
		err = put_inline(q, wr, &w, slot + SOFTNIC_SEND_WQE_SIZE);
	} else if (bind) {
		w.flags &= (uint8_t)~IBV_SEND_INLINE;
	} else if (SN_LIKELY((uint32_t)wr->num_sge <= q->sq.max_sge)) {
		w.count = (uint16_t)wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			memcpy(slot + SOFTNIC_SEND_WQE_SIZE + (size_t)i * SOFTNIC_SGE_SIZE, &wr->sg_list[i], SOFTNIC_SGE_SIZE);
	} else {
		err = EINVAL;
	}
	if (!err) {
		memcpy(slot, &w, sizeof w);
		q->sq.posted++;
	}
	return err;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct sn_qp *q = sn_qp_of(qp);
	uint32_t before;
	int err;

	if (SN_UNLIKELY(q->target)) {
		*bad_wr = wr;
		return EINVAL;
	}
	/* In the child of a fork the lock may be held by a thread that is not there. */
	if (sn_forked(sn_context_of(qp->context))) {
		*bad_wr = wr;
		return EIO;
	}
	sn_lock(&q->sq.lock);
	before = q->sq.posted;
	err = sn_send_ready(q);
	for (; SN_LIKELY(!err) && wr; wr = wr->next) {
		err = put_send(q, wr);
		if (SN_UNLIKELY(err))
			break;
	}
	if (SN_LIKELY(q->sq.posted != before))
		sn_publish_send(q);
	sn_unlock(&q->sq.lock);
	if (SN_UNLIKELY(err))
		*bad_wr = wr;
	return err;
}

static int recv_ready(struct sn_qp *q)
{
	if (SN_UNLIKELY(q->target || q->ex.qp_base.srq || sn_qp_state(q) == IBV_QPS_RESET))
		return EINVAL;
	return SN_UNLIKELY(sn_lost(sn_context_of(q->ex.qp_base.context))) ? EIO : 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct sn_context *c = sn_context_of(qp->context);
	struct sn_qp *q = sn_qp_of(qp);
	uint32_t before;
	int err;

	if (sn_forked(c)) {
		*bad_wr = wr;
		return EIO;
	}
	sn_lock(&q->rq.lock);
	before = q->rq.posted;
	err = recv_ready(q);
	for (; SN_LIKELY(!err) && wr; wr = wr->next) {
		uint8_t *slot = sn_recv_slot(&q->rq, q->header, c->reclaim_poll);

		if (SN_UNLIKELY(!slot))
			err = ENOMEM;
		else if (SN_UNLIKELY((uint32_t)wr->num_sge > q->rq.max_sge))
			err = EINVAL;
		if (SN_UNLIKELY(err))
			break;
		sn_put_recv(slot, wr);
		q->rq.posted++;
	}
	if (SN_LIKELY(q->rq.posted != before)) {
		sn_publish_recv(q->header, q->rq.posted);
		/* The device looks when a packet needs a receive. Only in the error state nothing else makes it look: to flush. */
		if (SN_UNLIKELY(sn_qp_state(q) == IBV_QPS_ERR))
			sn_ring(c, q->slot, q->shard);
	}
	sn_unlock(&q->rq.lock);
	if (SN_UNLIKELY(err))
		*bad_wr = wr;
	return err;
}

void sn_install_post(struct sn_context *c)
{
	sn_public(c)->ops.post_send = post_send;
	sn_public(c)->ops.post_recv = post_recv;
}
