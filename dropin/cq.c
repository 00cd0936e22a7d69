/* Completion queues: making, resizing's part in reading, destroying. Their entries are read in poll.c and cqex.c. */
#include "softnic.h"

#include <stdlib.h>

#include "ring.h"

/* Far from any device's limit. The device judges the number; memory for it must not be asked for before. */
#define MAX_ENTRIES (1u << 26)

int sn_cq_ring_new(struct sn_context *c, uint32_t entries, struct sn_cq_ring **ring)
{
	struct sn_cq_ring *r;
	int err;

	*ring = NULL;
	if (entries < 1 || entries > MAX_ENTRIES)
		return EINVAL;
	r = calloc(1, sizeof *r);
	if (!r)
		return ENOMEM;
	r->capacity = (entries + SOFTNIC_CQ_ROUND - 1) / SOFTNIC_CQ_ROUND * SOFTNIC_CQ_ROUND;
	err = sn_block_alloc(c, SOFTNIC_CQ_HEADER_SIZE + (uint64_t)r->capacity * SOFTNIC_CQE_SIZE, &r->block);
	if (err) {
		free(r);
		return err;
	}
	r->entries = r->block.mem + SOFTNIC_CQ_HEADER_SIZE;
	*ring = r;
	return 0;
}

void sn_cq_ring_free(struct sn_context *c, struct sn_cq_ring *r)
{
	sn_block_free(c, &r->block);
	free(r);
}

bool sn_cq_turn(struct sn_cq *q)
{
	uint64_t moved = atomic_load_explicit(sn_word64(q->ring->block.mem, SOFTNIC_OFF_CQ_MOVED), memory_order_acquire);

	if (moved != (1ull << 32 | (uint32_t)q->index))
		return false;
	q->ring = q->ring->next;
	q->pos = 0;
	return true;
}

/* The published count is a step behind the entries at most, and it may not count yet what was taken already: what it does
 * not count is looked for. On the way from one ring to another places cannot be computed. */
uint64_t sn_cq_end(struct sn_cq *q)
{
	uint32_t produced = atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_CQ_PRODUCED), memory_order_acquire);
	uint32_t index = (uint32_t)q->index, waiting = (int32_t)(produced - index) > 0 ? produced - index : 0;
	uint32_t capacity = q->ring->capacity;

	if (q->ring->next)
		return q->index + (waiting ? waiting : sn_cq_look(q) != NULL);
	if (waiting > capacity)
		waiting = capacity;
	while (waiting < capacity) {
		uint8_t *e = q->ring->entries + (size_t)((q->pos + waiting) % capacity) * SOFTNIC_CQE_SIZE;

		if (atomic_load_explicit(sn_word32(e, SOFTNIC_OFF_CQE_SEQUENCE), memory_order_acquire) != index + waiting + 1)
			break;
		waiting++;
	}
	return q->index + waiting;
}

/* The rings between the first, which has the header, and the one that is read are not needed any more. */
void sn_cq_leave(struct sn_cq *q)
{
	struct sn_cq_ring *r = NULL, *end;

	sn_lock(&q->lock);
	end = q->ring;
	if (q->first != end) {
		r = q->first->next;
		q->first->next = end;
	}
	sn_unlock(&q->lock);
	/* Who polls may go on meanwhile: what stood at end is read, or the next to go. */
	while (r && r != end) {
		struct sn_cq_ring *next = r->next;

		sn_cq_ring_free(sn_context_of(q->ex.context), r);
		r = next;
	}
}

/* Gives up everything but what the device has of it. */
static void discard(struct sn_context *c, struct sn_cq *q)
{
	for (struct sn_cq_ring *r = q->first, *next; r; r = next) {
		next = r->next;
		sn_cq_ring_free(c, r);
	}
	pthread_mutex_destroy(&q->resizing);
	pthread_mutex_destroy(&q->ex.mutex);
	pthread_cond_destroy(&q->ex.cond);
	free(q);
}

static int create(struct sn_context *c, struct sn_cq *q, uint32_t entries, uint32_t vector)
{
	struct softnic_ctl_create_cq m = { .entries = entries, .comp_vector = vector };
	struct softnic_ctl_create_cq_reply r;
	int err;

	m.channel = q->ex.channel ? sn_channel_of(q->ex.channel)->handle : 0;
	m.arena = q->first->block.arena;
	m.offset = q->first->block.offset;
	/* An event may come as soon as the daemon knows the queue. */
	m.cookie = q->cookie = sn_object_add(c, SN_CQ, q);
	if (!m.cookie)
		return ENOMEM;
	err = sn_call(c, SOFTNIC_CTL_OP_CREATE_CQ, &m, sizeof m, &r, sizeof r);
	if (!err && r.capacity != q->first->capacity) {
		sn_call_handle(c, SOFTNIC_CTL_OP_DESTROY_CQ, r.handle);
		err = EPROTO;
	}
	if (err) {
		sn_object_remove(c, q->cookie);
		return err;
	}
	q->ex.handle = r.handle;
	q->ex.cqe = (int)entries; /* the places beyond, to a whole number of blocks, are nobody's to count on */
	return 0;
}

static struct sn_cq *new_cq(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	struct sn_context *c = sn_context_of(context);
	struct sn_cq *q = calloc(1, sizeof *q);
	int err = q ? 0 : ENOMEM;

	if (!err) {
		pthread_mutex_init(&q->ex.mutex, NULL);
		pthread_cond_init(&q->ex.cond, NULL);
		pthread_mutex_init(&q->resizing, NULL);
		q->ex.context = context;
		q->ex.channel = attr->channel;
		q->ex.cq_context = attr->cq_context;
		q->single = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		err = sn_cq_ring_new(c, attr->cqe, &q->first);
	}
	if (!err) {
		q->ring = q->first;
		q->header = q->first->block.mem;
		err = create(c, q, attr->cqe, attr->comp_vector);
		if (err)
			discard(c, q);
	} else {
		free(q);
	}
	if (err) {
		errno = err;
		return NULL;
	}
	if (attr->channel) {
		pthread_mutex_lock(&context->mutex);
		attr->channel->refcnt++;
		pthread_mutex_unlock(&context->mutex);
	}
	return q;
}

SN_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
				       int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe < 0 ? 0 : (uint32_t)cqe, .cq_context = cq_context, .channel = channel, .comp_vector = (uint32_t)comp_vector,
	};
	struct sn_cq *q = new_cq(context, &attr);

	return q ? sn_public_cq(q) : NULL;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct sn_cq *q;
	int err = 0;

	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	     attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		err = EOPNOTSUPP;
	if (err) {
		errno = err;
		return NULL;
	}
	q = new_cq(context, attr);
	if (!q)
		return NULL;
	err = sn_cq_extend(q, attr->wc_flags);
	if (err) {
		ibv_destroy_cq(sn_public_cq(q));
		errno = err;
		return NULL;
	}
	return &q->ex;
}

SN_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct sn_context *c = sn_context_of(cq->context);
	struct sn_cq *q = sn_cq_of(cq);
	int err = sn_destroy(c, SOFTNIC_CTL_OP_DESTROY_CQ, cq->handle);

	if (err)
		return err;
	sn_object_remove(c, q->cookie);
	sn_wait_acks(&cq->mutex, &cq->cond, &cq->comp_events_completed, &q->comp_events);
	sn_wait_acks(&cq->mutex, &cq->cond, &cq->async_events_completed, &q->async_events);
	if (cq->channel) {
		pthread_mutex_lock(&cq->context->mutex);
		cq->channel->refcnt--;
		pthread_mutex_unlock(&cq->context->mutex);
	}
	if (!sn_forked(c)) {
		/* A poll that is on its way out has the lock. */
		sn_lock(&q->lock);
		sn_unlock(&q->lock);
	}
	discard(c, q);
	return 0;
}

void sn_install_cq(struct sn_context *c)
{
	c->verbs.create_cq_ex = create_cq_ex;
}
