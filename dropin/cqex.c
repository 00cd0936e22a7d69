/* The iterators of ibv_cq_ex: an entry is read where it lies in the ring, a field at a time.
 *
 * From start_poll to end_poll the queue is locked, unless its application has promised to use it from one thread at a
 * time. Entries are the device's again at the end, and on the way when many were taken. */
#include <arpa/inet.h>

#include "ring.h"

/* Fields that an entry has. */
#define OFFERED (IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

/* Entries taken before their places are given back though the iteration goes on. */
enum { GIVE_BACK = 32 };

static const struct softnic_cqe *entry(struct ibv_cq_ex *ex)
{
	return (const struct softnic_cqe *)(const void *)sn_cq_of_ex(ex)->current;
}

static void lock(struct sn_cq *q)
{
	if (!q->single)
		sn_lock(&q->lock);
}

static void unlock(struct sn_cq *q)
{
	if (!q->single)
		sn_unlock(&q->lock);
}

/* Takes the next entry that is for the application. */
static bool advance(struct sn_cq *q)
{
	const struct softnic_cqe *e;

	while ((e = sn_cq_next(q))) {
		if (SN_UNLIKELY(!sn_cq_account(q, e)))
			continue;
		q->current = (const uint8_t *)e;
		q->ex.wr_id = e->wr_id;
		q->ex.status = (enum ibv_wc_status)e->status;
		return true;
	}
	return false;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct sn_cq *q = sn_cq_of_ex(ex);
	int error;

	if (attr->comp_mask)
		return EINVAL;
	/* The entries are the parent's. */
	if (sn_forked(sn_context_of(ex->context)))
		return EIO;
	lock(q);
	if (SN_LIKELY(advance(q))) {
		if (atomic_load_explicit(&q->empty, memory_order_relaxed))
			atomic_store_explicit(&q->empty, 0, memory_order_relaxed);
		return 0;
	}
	error = sn_cq_over(q);
	sn_cq_release(q);
	unlock(q);
	if (!error)
		sn_cq_yield(q);
	return error ? error : ENOENT;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct sn_cq *q = sn_cq_of_ex(ex);

	if (q->index - q->given >= GIVE_BACK)
		sn_cq_release(q);
	return advance(q) ? 0 : ENOENT;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct sn_cq *q = sn_cq_of_ex(ex);

	sn_cq_release(q);
	unlock(q);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex) { return (enum ibv_wc_opcode)entry(ex)->opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *ex) { return entry(ex)->vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *ex) { return entry(ex)->byte_len; }
static uint32_t read_qp_num(struct ibv_cq_ex *ex) { return entry(ex)->qpn; }
static uint32_t read_src_qp(struct ibv_cq_ex *ex) { return entry(ex)->src_qp; }
static unsigned int read_wc_flags(struct ibv_cq_ex *ex) { return entry(ex)->flags; }
static uint32_t read_slid(struct ibv_cq_ex *ex) { return entry(ex)->slid; }
static uint8_t read_sl(struct ibv_cq_ex *ex) { return sn_cqe_sl(entry(ex)); }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex) { return entry(ex)->dlid_path_bits; }
static uint64_t read_completion_ts(struct ibv_cq_ex *ex) { return entry(ex)->timestamp; }

/* The immediate is in network order, a key that was invalidated in the host's. */
static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	const struct softnic_cqe *e = entry(ex);

	return e->flags & IBV_WC_WITH_INV ? e->imm : htonl(e->imm);
}

/* The device's clock is CLOCK_MONOTONIC. The time of day is told by the host's clock as it is set now; work that failed
 * before the device had begun it has no time, 0. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	uint64_t stamp = entry(ex)->timestamp;

	return stamp ? sn_clock_ns(CLOCK_REALTIME) - (sn_clock_ns(CLOCK_MONOTONIC) - stamp) : 0;
}

/* What no entry has: no queue can be made for it. */
static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	(void)ex;
	*info = (struct ibv_wc_tm_info){ 0 };
}

int sn_cq_extend(struct sn_cq *q, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &q->ex;

	if (wc_flags & ~(uint64_t)OFFERED)
		return EOPNOTSUPP;
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_cvlan = read_cvlan;
	ex->read_flow_tag = read_flow_tag;
	ex->read_tm_info = read_tm_info;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
	return 0;
}
