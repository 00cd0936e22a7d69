/* Shared receive queues: a ring of receives, which whatever queue pair needs one takes. Their places are free again when
 * they are taken. */
#include <stdlib.h>

#include "ring.h"

static void ring_of(struct sn_wq *w, uint8_t *header, uint32_t depth)
{
	w->depth = depth;
	w->ring = header + SOFTNIC_QP_HEADER_SIZE;
}

/* Takes memory for a ring. */
static int block_for(struct sn_context *c, uint32_t max_wr, uint32_t max_sge, struct sn_block *b)
{
	int error;

	if (max_wr == 0 || max_wr > SN_MAX_DEPTH || max_sge > SOFTNIC_MAX_SGE)
		return EINVAL;
	error = sn_block_alloc(c, SOFTNIC_QP_HEADER_SIZE + (uint64_t)sn_round_depth(max_wr) * softnic_recv_stride(max_sge), b);
	if (!error)
		memset(b->mem, 0, SOFTNIC_QP_HEADER_SIZE);
	return error;
}

/* The device's part: a queue of its own, or one of an XRC domain. */
static int create_on_device(struct sn_context *c, struct sn_srq *q, const struct softnic_ctl_create_srq *m, struct ibv_srq_init_attr_ex *attr)
{
	struct softnic_ctl_create_srq_reply r;
	int error;

	if (q->xrc) {
		struct softnic_ctl_create_xsrq x = { .srq = *m, .xrcd = sn_xrcd_of(attr->xrcd)->handle, .cq = attr->cq->handle };
		struct softnic_ctl_create_xsrq_reply xr;

		error = sn_call(c, SOFTNIC_CTL_OP_CREATE_XSRQ, &x, sizeof(x), &xr, sizeof(xr));
		if (error)
			return error;
		q->number = xr.number;
		r = (struct softnic_ctl_create_srq_reply){ .handle = xr.handle, .max_wr = xr.max_wr, .max_sge = xr.max_sge };
	} else {
		error = sn_call(c, SOFTNIC_CTL_OP_CREATE_SRQ, m, sizeof(*m), &r, sizeof(r));
		if (error)
			return error;
	}
	q->srq.handle = r.handle;
	attr->attr.max_wr = r.max_wr;
	attr->attr.max_sge = r.max_sge;
	return 0;
}

static struct ibv_srq *create(struct sn_context *c, struct ibv_srq_init_attr_ex *attr, bool xrc)
{
	struct sn_srq *q = calloc(1, sizeof(*q));
	struct softnic_ctl_create_srq m = { .pd = attr->pd->handle, .max_wr = attr->attr.max_wr, .max_sge = attr->attr.max_sge };
	int error = ENOMEM;

	if (!q)
		goto failed;
	q->srq.context = sn_public(c);
	q->srq.srq_context = attr->srq_context;
	q->srq.pd = attr->pd;
	q->xrc = xrc;
	q->rq.max_sge = m.max_sge;
	error = block_for(c, m.max_wr, m.max_sge, &q->block);
	if (error)
		goto failed;
	q->header = q->block.mem;
	q->rq.stride = softnic_recv_stride(m.max_sge);
	ring_of(&q->rq, q->header, sn_round_depth(m.max_wr));
	pthread_mutex_init(&q->resizing, NULL);
	pthread_mutex_init(&q->srq.mutex, NULL);
	pthread_cond_init(&q->srq.cond, NULL);
	q->cookie = sn_object_add(c, SN_SRQ, q);
	error = q->cookie ? 0 : ENOMEM;
	if (error)
		goto freed;
	m.arena = q->block.arena;
	m.offset = q->block.offset;
	m.cookie = q->cookie;
	error = create_on_device(c, q, &m, attr);
	if (!error)
		return &q->srq;
	sn_object_remove(c, q->cookie);
freed:
	sn_block_free(c, &q->block);
	pthread_cond_destroy(&q->srq.cond);
	pthread_mutex_destroy(&q->srq.mutex);
	pthread_mutex_destroy(&q->resizing);
failed:
	free(q);
	errno = error;
	return NULL;
}

SN_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct ibv_srq_init_attr_ex attr = { .srq_context = init->srq_context, .attr = init->attr, .pd = pd };
	struct ibv_srq *srq = create(sn_context_of(pd->context), &attr, false);

	if (srq)
		init->attr = attr.attr;
	return srq;
}

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	uint32_t needs = IBV_SRQ_INIT_ATTR_PD | (type == IBV_SRQT_XRC ? IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ : 0);

	/* Tag matching is not offered. */
	if ((attr->comp_mask & ~known) || (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((attr->comp_mask & needs) != needs || attr->pd->context != context ||
	    (type == IBV_SRQT_XRC && (attr->xrcd->context != context || attr->cq->context != context))) {
		errno = EINVAL;
		return NULL;
	}
	return create(sn_context_of(context), attr, type == IBV_SRQT_XRC);
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	if (!sn_srq_of(srq)->xrc)
		return EOPNOTSUPP;
	*number = sn_srq_of(srq)->number;
	return 0;
}

/* Puts what is posted into another ring. The device takes from the old one meanwhile; what it takes is not looked at in
 * the new one. The lock is held. */
static int move(struct sn_srq *q, uint8_t *header, uint32_t max_wr)
{
	uint32_t taken = atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_RQ_TAKEN), memory_order_acquire);

	if (q->rq.posted - taken > max_wr)
		return EINVAL;
	q->next = q->rq;
	ring_of(&q->next, header, sn_round_depth(max_wr));
	for (uint32_t i = taken; i != q->rq.posted; i++)
		memcpy(sn_slot_at(&q->next, i), sn_slot_at(&q->rq, i), q->rq.stride);
	atomic_store(sn_word32(header, SOFTNIC_OFF_RQ_TAKEN), taken);
	sn_publish_recv(header, q->rq.posted);
	q->next_header = header;
	q->next_places = max_wr < q->rq.depth ? max_wr : q->rq.depth;
	return 0;
}

/* The device has gone over to the new ring, or it has not. The lock is held. */
static void moved(struct sn_srq *q, const struct sn_block *block, bool done)
{
	if (done) {
		q->block = *block;
		q->header = q->next_header;
		ring_of(&q->rq, q->header, q->next.depth);
		atomic_store_explicit(&q->rq.done, atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_RQ_TAKEN), memory_order_acquire),
				      memory_order_relaxed);
	}
	q->next_header = NULL;
}

/* Between the call and its answer nobody knows from which ring the device takes: what is posted goes to both. */
static int resize_to(struct sn_srq *q, struct softnic_ctl_modify_srq *m, struct sn_block *block)
{
	struct sn_block old = q->block;
	int error;

	m->arena = block->arena;
	m->offset = block->offset;
	sn_lock(&q->rq.lock);
	error = move(q, block->mem, m->max_wr);
	sn_unlock(&q->rq.lock);
	if (!error) {
		error = sn_call(sn_context_of(q->srq.context), SOFTNIC_CTL_OP_MODIFY_SRQ, m, sizeof(*m), NULL, 0);
		sn_lock(&q->rq.lock);
		moved(q, block, !error);
		sn_unlock(&q->rq.lock);
	}
	if (!error)
		*block = old;
	return error;
}

static int resize(struct sn_srq *q, struct softnic_ctl_modify_srq *m)
{
	struct sn_context *c = sn_context_of(q->srq.context);
	struct sn_block block = { 0 };
	int error = block_for(c, m->max_wr, q->rq.max_sge, &block);

	/* In the child of a fork that has failed: the locks may be held by threads that are not there. */
	if (error)
		return error;
	pthread_mutex_lock(&q->resizing);
	error = resize_to(q, m, &block);
	pthread_mutex_unlock(&q->resizing);
	sn_block_free(c, &block); /* the new one, or the old */
	return error;
}

SN_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct softnic_ctl_modify_srq m = { .srq = srq->handle, .mask = (uint32_t)mask, .max_wr = attr->max_wr, .limit = attr->srq_limit };

	if (mask & IBV_SRQ_MAX_WR)
		return resize(sn_srq_of(srq), &m);
	return sn_call(sn_context_of(srq->context), SOFTNIC_CTL_OP_MODIFY_SRQ, &m, sizeof(m), NULL, 0);
}

SN_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct softnic_ctl_handle m = { .handle = srq->handle };
	struct softnic_ctl_query_srq_reply r;
	int error = sn_call(sn_context_of(srq->context), SOFTNIC_CTL_OP_QUERY_SRQ, &m, sizeof(m), &r, sizeof(r));

	if (!error)
		*attr = (struct ibv_srq_attr){ .max_wr = r.max_wr, .max_sge = r.max_sge, .srq_limit = r.limit };
	return error;
}

SN_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct sn_context *c = sn_context_of(srq->context);
	struct sn_srq *q = sn_srq_of(srq);
	int error = sn_destroy(c, SOFTNIC_CTL_OP_DESTROY_SRQ, srq->handle);

	if (error)
		return error;
	sn_object_remove(c, q->cookie);
	sn_wait_acks(&srq->mutex, &srq->cond, &srq->events_completed, &q->async_events);
	sn_block_free(c, &q->block);
	pthread_cond_destroy(&srq->cond);
	pthread_mutex_destroy(&srq->mutex);
	pthread_mutex_destroy(&q->resizing);
	free(q);
	return 0;
}

/* Whether a queue that is being resized is full. The device counts what it takes in the ring from which it takes. */
static bool full_meanwhile(struct sn_srq *q)
{
	uint32_t taken = atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_RQ_TAKEN), memory_order_acquire);
	uint32_t next = atomic_load_explicit(sn_word32(q->next_header, SOFTNIC_OFF_RQ_TAKEN), memory_order_acquire);

	return q->rq.posted - ((int32_t)(next - taken) > 0 ? next : taken) >= q->next_places;
}

static int post_one(struct sn_srq *q, const struct ibv_recv_wr *wr)
{
	uint8_t *slot;

	if (SN_UNLIKELY(wr->num_sge < 0 || (uint32_t)wr->num_sge > q->rq.max_sge))
		return EINVAL;
	if (SN_UNLIKELY(q->next_header)) {
		if (full_meanwhile(q))
			return ENOMEM;
		slot = sn_slot_at(&q->rq, q->rq.posted);
		sn_put_recv(sn_slot_at(&q->next, q->rq.posted), wr);
	} else {
		slot = sn_recv_slot(&q->rq, q->header, false);
		if (SN_UNLIKELY(!slot))
			return ENOMEM;
	}
	sn_put_recv(slot, wr);
	q->rq.posted++;
	return 0;
}

/* First where the device goes to: there it expects at least what it has taken. */
static void publish(struct sn_srq *q)
{
	if (SN_UNLIKELY(q->next_header))
		sn_publish_recv(q->next_header, q->rq.posted);
	sn_publish_recv(q->header, q->rq.posted);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sn_srq *q = sn_srq_of(srq);
	uint32_t first;
	int error = 0;

	if (sn_forked(sn_context_of(srq->context))) {
		*bad = wr;
		return EIO;
	}
	sn_lock(&q->rq.lock);
	first = q->rq.posted;
	/* After SRQ_ERR nothing takes receives any more (IBA 10.2.9.5). */
	if (SN_UNLIKELY(sn_lost(sn_context_of(srq->context)) ||
			atomic_load_explicit(sn_word32(q->header, SOFTNIC_OFF_QP_STATE), memory_order_acquire) == IBV_QPS_ERR))
		error = EIO;
	while (!error && wr) {
		error = post_one(q, wr);
		if (!error)
			wr = wr->next;
	}
	if (q->rq.posted != first)
		publish(q);
	sn_unlock(&q->rq.lock);
	if (SN_UNLIKELY(error))
		*bad = wr;
	return error;
}

void sn_install_srq(struct sn_context *c)
{
	sn_public(c)->ops.post_srq_recv = post_srq_recv;
	c->verbs.create_srq_ex = create_srq_ex;
	c->verbs.get_srq_num = get_srq_num;
}
