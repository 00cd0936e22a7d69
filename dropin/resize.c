/* Changing completion queues: their size, under traffic, and the moderation of their events.
 *
 * The new ring is known here before the device is asked for the resize: whoever polls goes on there by himself when the
 * next entry is its first (sn_cq_turn). The ring that was left is freed when that has happened. */
#include <time.h>

#include "ring.h"

static struct sn_cq_ring *last_of(struct sn_cq *q)
{
	struct sn_cq_ring *r = q->ring;

	while (r->next)
		r = r->next;
	return r;
}

static uint32_t count(struct sn_cq *q)
{
	uint32_t n;

	sn_lock(&q->lock);
	n = (uint32_t)(sn_cq_end(q) - q->index);
	sn_unlock(&q->lock);
	return n;
}

/* Requests that were posted are on their way to this queue, and would overrun a smaller one a moment later. So before it
 * shrinks they are given that moment: until nothing comes for 10 ms, 50 ms at the most. */
static void settle(struct sn_cq *q)
{
	struct timespec millisecond = { .tv_nsec = 1000000 };
	uint32_t before = count(q);

	for (int tries = 0, calm = 0; tries < 50 && calm < 10; tries++, calm++) {
		nanosleep(&millisecond, NULL);
		if (count(q) != before)
			calm = 0;
		before = count(q);
	}
}

static int resize(struct sn_cq *q, uint32_t entries)
{
	struct sn_context *c = sn_context_of(q->ex.context);
	struct softnic_ctl_resize_cq m = { .cq = q->ex.handle, .entries = entries };
	struct softnic_ctl_resize_cq_reply r;
	struct sn_cq_ring *ring, *last;
	uint32_t waiting;
	bool unused;
	int error = sn_cq_ring_new(c, entries, &ring);

	if (error)
		return error;
	if (entries < (uint32_t)q->ex.cqe)
		settle(q);
	m.arena = ring->block.arena;
	m.offset = ring->block.offset;
	sn_lock(&q->lock);
	waiting = (uint32_t)(sn_cq_end(q) - q->index);
	if (waiting <= entries)
		last_of(q)->next = ring;
	sn_unlock(&q->lock);
	/* The device counts the places that there really are. */
	if (waiting > entries) {
		sn_cq_ring_free(c, ring);
		return EINVAL;
	}
	error = sn_call(c, SOFTNIC_CTL_OP_RESIZE_CQ, &m, sizeof(m), &r, sizeof(r));
	sn_lock(&q->lock);
	unused = error && q->ring != ring;
	if (unused) {
		for (last = q->ring; last->next != ring;)
			last = last->next;
		last->next = NULL;
	} else if (!error) {
		q->ex.cqe = (int)entries;
		sn_cq_look(q); /* an empty queue leaves the old ring at once, though nobody polls */
	}
	sn_unlock(&q->lock);
	/* A daemon that died before it could answer may have gone on to the ring, and who polls with it. */
	if (unused)
		sn_cq_ring_free(c, ring);
	sn_cq_leave(q);
	return error;
}

SN_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct sn_cq *q = sn_cq_of(cq);
	int error;

	if (cqe < 1)
		return EINVAL;
	/* The locks may be held by threads that are not here. */
	if (sn_forked(sn_context_of(cq->context)))
		return EIO;
	pthread_mutex_lock(&q->resizing);
	error = resize(q, (uint32_t)cqe);
	pthread_mutex_unlock(&q->resizing);
	return error;
}

static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct softnic_ctl_modify_cq m = { .cq = cq->handle, .count = attr->moderate.cq_count, .period = attr->moderate.cq_period };

	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return EOPNOTSUPP;
	if (!attr->attr_mask)
		return EINVAL;
	return sn_call(sn_context_of(cq->context), SOFTNIC_CTL_OP_MODIFY_CQ, &m, sizeof(m), NULL, 0);
}

void sn_install_resize(struct sn_context *c)
{
	c->verbs.modify_cq = modify_cq;
}
