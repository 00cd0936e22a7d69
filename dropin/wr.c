/* The builders of ibv_qp_ex: requests are written into the send ring one by one, while the queue is locked, and published
 * together by wr_complete.
 *
 *	wr_start                     locks the queue
 *	wr_rdma_write ...            begins a request in the next slot
 *	wr_set_sge ...               says what it works on
 *	wr_complete, or wr_abort     publishes all, or none, and unlocks
 *
 * The functions between start and end return nothing. The first thing that is wrong is remembered; wr_complete returns it
 * and publishes nothing. Nothing that is begun can be seen by the device before it is published, so that forgetting is to
 * count back. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "ring.h"

/* What libibverbs has named since release 44. */
enum { SN_QP_EX_WITH_FLUSH = 1 << 11, SN_WR_FLUSH = 14 };

#define ALL_SENDS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define ALL_UC                                                                                                         \
	(ALL_SENDS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |        \
	 IBV_QP_EX_WITH_BIND_MW)
#define ALL_RC                                                                                                         \
	(ALL_UC | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |         \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE | SN_QP_EX_WITH_FLUSH)

/* The batch of a queue pair, between start and end. */
struct sn_builder {
	uint64_t allowed;              /* IBV_QP_EX_WITH_ of the operations that the queue pair was made for */
	struct softnic_send_wqe *wqe; /* the request that is being built; NULL if there is none, or it went wrong */
	uint32_t first;                /* sq.posted when the batch began */
	int error;                     /* the first */
	bool needs_address;            /* the request is a datagram, and has not got its address yet */
};

static void fail(struct sn_builder *b, int error)
{
	if (!b->error)
		b->error = error;
	b->wqe = NULL;
}

/* Begins a request: the next slot, with everything in it that operations do not set themselves. NULL if it went wrong. */
static struct softnic_send_wqe *begin(struct ibv_qp_ex *ex, uint64_t operation, uint8_t opcode)
{
	struct sn_qp *q = sn_qp_of_ex(ex);
	struct sn_builder *b = q->builder;
	uint8_t *slot;

	if (SN_UNLIKELY(b->error || b->needs_address || !(b->allowed & operation))) {
		fail(b, EINVAL);
		return NULL;
	}
	slot = sn_send_slot(q);
	if (SN_UNLIKELY(!slot)) {
		fail(b, ENOMEM);
		return NULL;
	}
	b->wqe = (struct softnic_send_wqe *)(void *)slot;
	*b->wqe = (struct softnic_send_wqe){
		.wr_id = ex->wr_id, .opcode = opcode,
		.flags = (uint8_t)(ex->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)),
	};
	b->needs_address = ex->qp_base.qp_type == IBV_QPT_UD;
	q->sq.posted++;
	return b->wqe;
}

/* The request that is being built; none is an error. */
static struct softnic_send_wqe *current(struct sn_builder *b)
{
	if (SN_UNLIKELY(!b->wqe))
		fail(b, EINVAL);
	return b->wqe;
}

/* In the child of a fork the lock may be held by a thread that is not there, and nothing is posted. */
static bool forked(struct sn_qp *q) { return sn_forked(sn_context_of(q->ex.qp_base.context)); }

static void wr_start(struct ibv_qp_ex *ex)
{
	struct sn_qp *q = sn_qp_of_ex(ex);
	struct sn_builder *b = q->builder;

	if (!forked(q))
		sn_lock(&q->sq.lock);
	b->error = forked(q) ? EIO : sn_send_ready(q);
	b->wqe = NULL;
	b->first = q->sq.posted;
	b->needs_address = false;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct sn_qp *q = sn_qp_of_ex(ex);
	struct sn_builder *b = q->builder;
	int error = b->error;

	if (!error && b->needs_address)
		error = EINVAL;
	if (SN_UNLIKELY(error))
		q->sq.posted = b->first;
	else if (q->sq.posted != b->first)
		sn_publish_send(q);
	if (!forked(q))
		sn_unlock(&q->sq.lock);
	return error;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct sn_qp *q = sn_qp_of_ex(ex);

	q->sq.posted = q->builder->first;
	if (!forked(q))
		sn_unlock(&q->sq.lock);
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_QP_EX_WITH_SEND, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	struct softnic_send_wqe *w = begin(ex, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM);

	if (w)
		w->imm = ntohl(imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct softnic_send_wqe *w = begin(ex, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV);

	if (w)
		w->imm = invalidate_rkey;
}

/* Segmentation of TCP is for Ethernet adapters: no queue pair can be made for it. */
static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	(void)hdr, (void)hdr_sz, (void)mss;
	fail(sn_qp_of_ex(ex)->builder, EOPNOTSUPP);
}

/* What has a place in the peer's memory. */
static struct softnic_send_wqe *begin_remote(struct ibv_qp_ex *ex, uint64_t operation, uint8_t opcode, uint32_t rkey, uint64_t remote_addr)
{
	struct softnic_send_wqe *w = begin(ex, operation, opcode);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = remote_addr;
	}
	return w;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm_data)
{
	struct softnic_send_wqe *w = begin_remote(ex, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (w)
		w->imm = ntohl(imm_data);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	struct softnic_send_wqe *w = begin_remote(ex, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr);

	if (w) {
		w->compare = compare;
		w->operand = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	struct softnic_send_wqe *w = begin_remote(ex, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr);

	if (w)
		w->operand = add;
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, const void *atomic_wr)
{
	struct softnic_send_wqe *w = begin_remote(ex, IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);

	if (w)
		memcpy(&w->operand, atomic_wr, sizeof(w->operand));
}

/* type is how far the data has to get, level whether length bytes or the whole region is meant (IBA A19.4.1). */
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type, uint8_t level)
{
	struct softnic_send_wqe *w = begin_remote(ex, SN_QP_EX_WITH_FLUSH, SN_WR_FLUSH, rkey, remote_addr);

	if (w) {
		w->operand = length;
		w->compare = (uint64_t)level << 32 | type;
	}
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct softnic_send_wqe *w = begin(ex, IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV);

	if (w)
		w->imm = invalidate_rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct sn_qp *q = sn_qp_of_ex(ex);
	struct softnic_send_wqe *w = begin(ex, IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW);
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	int error;

	if (!w)
		return;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = *info;
	error = sn_bind_fill(q, &wr, w);
	if (error)
		fail(q->builder, error);
}

/* --- what an operation works on ------------------------------------------------------------------------------------- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct sn_builder *b = sn_qp_of_ex(ex)->builder;
	struct softnic_send_wqe *w = current(b);

	if (!w)
		return;
	if (SN_UNLIKELY(!ah || ah->context != ex->qp_base.context || ex->qp_base.qp_type != IBV_QPT_UD)) {
		fail(b, EINVAL);
		return;
	}
	w->operand = (uint64_t)remote_qpn << 32 | ah->handle;
	w->compare = remote_qkey;
	b->needs_address = false;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	struct softnic_send_wqe *w = current(sn_qp_of_ex(ex)->builder);

	if (w)
		w->srqn = remote_srqn;
}

static void *behind(struct softnic_send_wqe *w) { return (uint8_t *)w + SOFTNIC_SEND_WQE_SIZE; }

_Static_assert(sizeof(struct ibv_sge) == SOFTNIC_SGE_SIZE && offsetof(struct ibv_sge, length) == offsetof(struct softnic_sge, length) &&
		       offsetof(struct ibv_sge, lkey) == offsetof(struct softnic_sge, lkey),
	       "a list stands in a request as the application has it");

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	struct sn_qp *q = sn_qp_of_ex(ex);
	struct softnic_send_wqe *w = current(q->builder);

	if (!w)
		return;
	if (SN_UNLIKELY(num_sge > q->sq.max_sge)) {
		fail(q->builder, EINVAL);
		return;
	}
	w->flags &= (uint8_t)~IBV_SEND_INLINE;
	w->count = (uint16_t)num_sge;
	if (num_sge)
		memcpy(behind(w), list, num_sge * SOFTNIC_SGE_SIZE);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *list)
{
	struct sn_qp *q = sn_qp_of_ex(ex);
	struct softnic_send_wqe *w = current(q->builder);
	uint8_t *to;
	size_t total = 0;

	if (!w)
		return;
	to = behind(w);
	for (size_t i = 0; i < num_buf; i++) {
		if (SN_UNLIKELY(list[i].length > q->max_inline - total)) {
			fail(q->builder, EINVAL);
			return;
		}
		if (list[i].length)
			memcpy(to + total, list[i].addr, list[i].length);
		total += list[i].length;
	}
	w->flags |= IBV_SEND_INLINE;
	w->count = (uint16_t)total;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf data = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &data);
}

/* --- making a queue pair that has them ------------------------------------------------------------------------------- */

static uint64_t offered(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_UD:
		return ALL_SENDS;
	case IBV_QPT_UC:
		return ALL_UC;
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return ALL_RC;
	default:
		return 0;
	}
}

_Static_assert(offsetof(struct sn_qp, wr_flush) == sizeof(struct ibv_qp_ex), "programs look for wr_flush behind what we know");

int sn_qp_extend(struct sn_qp *q, uint64_t send_ops_flags)
{
	struct ibv_qp_ex *ex = &q->ex;

	if (send_ops_flags & ~offered(ex->qp_base.qp_type))
		return EOPNOTSUPP;
	q->builder = calloc(1, sizeof(*q->builder));
	if (!q->builder)
		return ENOMEM;
	q->builder->allowed = send_ops_flags;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	q->wr_flush = wr_flush;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	return 0;
}
