/* Writing and reading the rings in shared memory: see the tables in softnicd_abi.h.
 *
 * "Publish, then look whether the other side sleeps" and "arm, then look" are sequentially consistent on both sides. */
#ifndef SOFTNIC_RING_H
#define SOFTNIC_RING_H

#include "softnic.h"

static inline atomic_uint *sn_word32(uint8_t *block, size_t offset) { return (atomic_uint *)(void *)(block + offset); }

static inline atomic_ullong *sn_word64(uint8_t *block, size_t offset) { return (atomic_ullong *)(void *)(block + offset); }

/* Far from any device's limit of requests. The device judges; only memory for more must not be asked for before. */
#define SN_MAX_DEPTH (1u << 22)

/* The places of a queue for n requests, SN_MAX_DEPTH at the most: the next power of two, since a place is an index's low
 * bits; 0 for none. */
static inline uint32_t sn_round_depth(uint32_t n) { return n <= 1 ? n : 1u << (32 - __builtin_clz(n - 1)); }

/* --- posting --------------------------------------------------------------------------------------------------------
 *
 * With q->sq.lock held:
 *
 *	err = sn_send_ready(q);
 *	slot = sn_send_slot(q);               NULL: the queue is full, ENOMEM
 *	... write a struct softnic_send_wqe at slot, and list or data behind it, at slot + SOFTNIC_SEND_WQE_SIZE ...
 *	q->sq.posted++;                       as often as there are requests
 *	sn_publish_send(q);                   once
 */

static inline uint32_t sn_qp_state(struct sn_qp *q)
{
	return atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_QP_STATE), memory_order_acquire);
}

/* Whether send requests may be posted: in SQE and ERR to be flushed (IBA 10.3.1). */
static inline int sn_send_ready(struct sn_qp *q)
{
	switch (sn_qp_state(q)) {
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
	case IBV_QPS_SQE:
	case IBV_QPS_ERR:
		return SN_UNLIKELY(sn_lost(sn_context_of(q->ex.qp_base.context))) ? EIO : 0;
	}
	return EINVAL;
}

static inline uint8_t *sn_slot_at(const struct sn_wq *w, uint32_t index)
{
	return w->ring + (size_t)(index & (w->depth - 1)) * w->stride;
}

/* The slot of the next send request; NULL when the queue is full. */
static inline uint8_t *sn_send_slot(struct sn_qp *q)
{
	struct sn_wq *w = &q->sq;

	if (SN_UNLIKELY(w->posted - atomic_load_explicit(&w->done, memory_order_acquire) >= w->depth)) {
		if (sn_context_of(q->ex.qp_base.context)->reclaim_poll)
			return NULL;
		atomic_store_explicit(&w->done, atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_SQ_DONE), memory_order_acquire),
				      memory_order_relaxed);
		if (w->posted - atomic_load_explicit(&w->done, memory_order_relaxed) >= w->depth)
			return NULL;
	}
	return sn_slot_at(w, w->posted);
}

/* The slot of the next receive; NULL when the queue is full. header and its rq_taken tell of places that are free again. */
static inline uint8_t *sn_recv_slot(struct sn_wq *w, uint8_t *header, bool reclaim_poll)
{
	if (SN_UNLIKELY(w->posted - atomic_load_explicit(&w->done, memory_order_acquire) >= w->depth)) {
		if (reclaim_poll)
			return NULL;
		atomic_store_explicit(&w->done, atomic_load_explicit(sn_word32(header, SOFTNIC_OFF_RQ_TAKEN), memory_order_acquire),
				      memory_order_relaxed);
		if (w->posted - atomic_load_explicit(&w->done, memory_order_relaxed) >= w->depth)
			return NULL;
	}
	return sn_slot_at(w, w->posted);
}

/* A receive in its slot. The caller has checked the length of the list. */
static inline void sn_put_recv(uint8_t *slot, const struct ibv_recv_wr *wr)
{
	struct softnic_recv_wqe w = { .wr_id = wr->wr_id, .count = (uint32_t)wr->num_sge };

	memcpy(slot, &w, sizeof w);
	if (wr->num_sge > 0)
		memcpy(slot + SOFTNIC_RECV_WQE_SIZE, wr->sg_list, (size_t)wr->num_sge * SOFTNIC_SGE_SIZE);
}

static inline void sn_bell_set(uint8_t *bell, size_t offset, uint32_t bit)
{
	atomic_ullong *word = sn_word64(bell, offset);
	unsigned long long mask = 1ull << (bit & 63);

	/* Looking leaves the cache line shared, writing does not. */
	if (!(atomic_load(word) & mask))
		atomic_fetch_or(word, mask);
}

void sn_bell_wake(struct sn_context *c); /* the system call of a doorbell (post.c) */

/* Tells the device that something was published in the rings of a queue pair: bits in shared memory, and a system call
 * only if the shard sleeps. */
static inline void sn_ring(struct sn_context *c, uint32_t slot, uint32_t shard)
{
	sn_bell_set(c->bell, SOFTNIC_OFF_BELL_LEAF + (size_t)(slot >> 6) * 8, slot);
	sn_bell_set(c->bell, SOFTNIC_OFF_BELL_MIDDLE + (size_t)(slot >> 12) * 8, slot >> 6);
	sn_bell_set(c->bell, SOFTNIC_OFF_BELL_TOP, slot >> 12);
	if (atomic_load(sn_word32(c->page, SOFTNIC_OFF_PAGE_SLEEPING + (size_t)shard * SOFTNIC_CACHE_LINE)))
		sn_bell_wake(c);
}

static inline void sn_publish_send(struct sn_qp *q)
{
	atomic_store(sn_word32(q->header, SOFTNIC_OFF_SQ_POSTED), q->sq.posted);
	sn_ring(sn_context_of(q->ex.qp_base.context), q->slot, q->shard);
}

/* The device looks for receives when a packet needs one: there is nobody to wake. */
static inline void sn_publish_recv(uint8_t *header, uint32_t posted)
{
	atomic_store(sn_word32(header, SOFTNIC_OFF_RQ_POSTED), posted);
}

/* --- polling --------------------------------------------------------------------------------------------------------
 *
 * With q->lock held:
 *
 *	while ((e = sn_cq_next(q)))           the oldest entry, which is taken
 *		if (sn_cq_account(q, e)) ...  it is the application's
 *	sn_cq_release(q);                     once; the entries are the device's again
 */

bool sn_cq_turn(struct sn_cq *q); /* goes on to the next ring if the next entry is there (cq.c) */

/* The next entry, without taking it; NULL if it has not come. */
static inline const struct softnic_cqe *sn_cq_look(struct sn_cq *q)
{
	for (;;) {
		uint8_t *e = q->ring->entries + (size_t)q->pos * SOFTNIC_CQE_SIZE;

		if (SN_LIKELY(atomic_load_explicit(sn_word32(e, SOFTNIC_OFF_CQE_SEQUENCE), memory_order_acquire) == (uint32_t)q->index + 1))
			return (const struct softnic_cqe *)(const void *)e;
		if (SN_LIKELY(!q->ring->next) || !sn_cq_turn(q))
			return NULL;
	}
}

static inline const struct softnic_cqe *sn_cq_next(struct sn_cq *q)
{
	const struct softnic_cqe *e = sn_cq_look(q);

	if (e) {
		if (++q->pos == q->ring->capacity)
			q->pos = 0;
		q->index++;
	}
	return e;
}

/* Books an entry that was just taken with its queue pair: its slot is free. Whether it is for the application: completions
 * of a queue pair that was destroyed or reset since are not. */
static inline bool sn_cq_account(struct sn_cq *q, const struct softnic_cqe *e)
{
	struct sn_context *c = sn_context_of(q->ex.context);
	struct sn_slot *leaf;
	struct sn_qp *qp;
	struct sn_wq *w;

	if (e->queue == SOFTNIC_QUEUE_XRC_RECV)
		return true; /* its slot was free when it was taken, and the queue pair may be another process's */
	if (SN_UNLIKELY(e->qp_slot >= SOFTNIC_MAX_QP_SLOTS))
		return false;
	leaf = atomic_load_explicit(&c->leaves[e->qp_slot / SN_LEAF_SLOTS], memory_order_acquire);
	if (SN_UNLIKELY(!leaf))
		return false;
	leaf += e->qp_slot % SN_LEAF_SLOTS;
	if (SN_UNLIKELY(atomic_load_explicit(&leaf->qpn, memory_order_acquire) != e->qpn))
		return false;
	qp = atomic_load_explicit(&leaf->qp, memory_order_acquire);
	/* Between the two the slot may have become another's (qp.c). */
	if (SN_UNLIKELY(atomic_load_explicit(&leaf->qpn, memory_order_relaxed) != e->qpn))
		return false;
	w = e->queue == SOFTNIC_QUEUE_SEND ? &qp->sq : &qp->rq;
	if (SN_UNLIKELY(w->reset)) {
		if (q->index <= w->stale)
			return false;
		w->reset = false;
	}
	if (e->queue != SOFTNIC_QUEUE_SHARED_RECV)
		atomic_store_explicit(&w->done, e->wqe_index + 1, memory_order_release);
	return true;
}

void sn_cq_leave(struct sn_cq *q);    /* frees the rings that were left, after a resize; without the lock (cq.c) */
uint64_t sn_cq_end(struct sn_cq *q);  /* the index after the last entry that is there; with the lock (cq.c) */

static inline void sn_cq_release(struct sn_cq *q)
{
	if (q->given != q->index) {
		q->given = q->index;
		atomic_store_explicit(sn_word32(q->header, SOFTNIC_OFF_CQ_CONSUMED), (uint32_t)q->index, memory_order_release);
	}
}

/* Whether the queue is dead (it overran), though entries may be left. */
static inline bool sn_cq_dead(struct sn_cq *q)
{
	return atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_CQ_STATE), memory_order_acquire) != SOFTNIC_CQ_OK;
}

int sn_cq_over(struct sn_cq *q); /* why nothing will come any more: 0, EOVERFLOW, EIO (poll.c) */
void sn_cq_yield(struct sn_cq *q); /* what a poll that found nothing does, without the lock (poll.c) */

#endif
