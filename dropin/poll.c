/* Polling and arming completion queues. */
#include "softnic.h"

#include <sched.h>

#include "ring.h"

/* Values in completions are those of the public interface. */
_Static_assert(IBV_WC_SUCCESS == 0 && IBV_WC_WR_FLUSH_ERR == 5 && IBV_WC_REM_ACCESS_ERR == 10 && IBV_WC_RETRY_EXC_ERR == 12 &&
	       IBV_WC_RNR_RETRY_EXC_ERR == 13 && IBV_WC_FATAL_ERR == 19 && IBV_WC_GENERAL_ERR == 21, "statuses");
_Static_assert(IBV_WC_SEND == 0 && IBV_WC_RDMA_WRITE == 1 && IBV_WC_RDMA_READ == 2 && IBV_WC_COMP_SWAP == 3 && IBV_WC_FETCH_ADD == 4 &&
	       IBV_WC_BIND_MW == 5 && IBV_WC_LOCAL_INV == 6 && IBV_WC_ATOMIC_WRITE == 9 && IBV_WC_RECV == 128 &&
	       IBV_WC_RECV_RDMA_WITH_IMM == 129, "opcodes");
_Static_assert(IBV_WC_GRH == 1 && IBV_WC_WITH_IMM == 2 && IBV_WC_WITH_INV == 8, "flags");

/* Polls in a row that find nothing: the first few cost nothing but a look, in case the completion is about to come. Then
 * the daemon, which may share the processor, gets its turn. */
#define FREE_POLLS 4

void sn_cq_yield(struct sn_cq *q)
{
	unsigned n = atomic_load_explicit(&q->empty, memory_order_relaxed);

	if (n < FREE_POLLS)
		atomic_store_explicit(&q->empty, n + 1, memory_order_relaxed);
	else
		sched_yield();
}

static inline void put_wc(struct ibv_wc *wc, const struct softnic_cqe *e)
{
	wc->wr_id = e->wr_id;
	wc->status = (enum ibv_wc_status)e->status;
	wc->opcode = (enum ibv_wc_opcode)e->opcode;
	wc->vendor_err = e->vendor_err;
	wc->byte_len = e->byte_len;
	/* The ring has an immediate in host order, the interface in network order. A key is a number in both. */
	wc->imm_data = e->flags & IBV_WC_WITH_INV ? e->imm : __builtin_bswap32(e->imm);
	wc->qp_num = e->qpn;
	wc->src_qp = e->src_qp;
	wc->wc_flags = e->flags;
	wc->pkey_index = e->pkey_index;
	wc->slid = e->slid;
	wc->sl = sn_cqe_sl(e);
	wc->dlid_path_bits = e->dlid_path_bits;
}

static int take(struct sn_cq *q, int n, struct ibv_wc *wc)
{
	const struct softnic_cqe *e;
	int got = 0;

	while (got < n && (e = sn_cq_next(q)))
		if (sn_cq_account(q, e))
			put_wc(&wc[got++], e);
	sn_cq_release(q);
	return got;
}

/* With the lock held. */
int sn_cq_over(struct sn_cq *q)
{
	struct sn_context *c = sn_context_of(q->ex.context);

	/* The last entry may have come after the caller had looked and before the end. */
	if (SN_UNLIKELY(sn_cq_dead(q)))
		return sn_cq_look(q) ? 0 : EOVERFLOW;
	if (SN_UNLIKELY(sn_lost(c)))
		return sn_cq_look(q) ? 0 : EIO;
	return 0;
}

/* Returns how many completions were taken, or -1: the queue has overrun, or the daemon is gone, and all that had come was
 * taken. */
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct sn_cq *q = sn_cq_of(cq);
	int got, err = 0;

	if (sn_forked(sn_context_of(cq->context))) {
		errno = EIO;
		return -1;
	}
	if (SN_UNLIKELY(n <= 0))
		return 0;
	if (!q->single)
		sn_lock(&q->lock);
	got = take(q, n, wc);
	if (got == 0)
		err = sn_cq_over(q);
	if (!q->single)
		sn_unlock(&q->lock);
	if (SN_LIKELY(got > 0)) {
		if (atomic_load_explicit(&q->empty, memory_order_relaxed))
			atomic_store_explicit(&q->empty, 0, memory_order_relaxed);
		return got;
	}
	if (SN_UNLIKELY(err)) {
		errno = err;
		return -1;
	}
	sn_cq_yield(q);
	return 0;
}

/* Asking again before the event came never weakens: next stays next, solicited may become next (IBA 11.4.2.2). Entries
 * that are there already make no event: who wants to sleep polls once more after arming. */
static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	uint32_t kind = solicited_only ? SOFTNIC_ARM_SOLICITED : SOFTNIC_ARM_NEXT;
	struct sn_cq *q = sn_cq_of(cq);
	bool armed;

	if (sn_forked(sn_context_of(cq->context)))
		return EIO;
	sn_lock(&q->lock);
	armed = q->kind != SOFTNIC_ARM_NONE && atomic_load(sn_word32(q->header, SOFTNIC_OFF_CQ_FIRED)) != q->sequence;
	if (!armed || (q->kind == SOFTNIC_ARM_SOLICITED && kind == SOFTNIC_ARM_NEXT)) {
		q->sequence += !armed; /* of a stronger arming the same: still one event */
		q->kind = kind;
		atomic_store(sn_word64(q->header, SOFTNIC_OFF_CQ_ARM), softnic_arm_word(q->sequence, kind));
	}
	/* The caller's next poll looks at entries: that must not happen before the store is seen. */
	atomic_thread_fence(memory_order_seq_cst);
	sn_unlock(&q->lock);
	return 0;
}

void sn_install_poll(struct sn_context *c)
{
	sn_public(c)->ops.poll_cq = poll_cq;
	sn_public(c)->ops.req_notify_cq = req_notify_cq;
}
