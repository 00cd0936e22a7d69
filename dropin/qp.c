/* Queue pairs: making, changing, asking, destroying. */
#include "softnic.h"

#include <stdlib.h>

#include "lid.h"
#include "ring.h"

_Static_assert(IBV_QPT_RC == 2 && IBV_QPT_UC == 3 && IBV_QPT_UD == 4 && IBV_QPT_XRC_SEND == 9 && IBV_QPT_XRC_RECV == 10, "types");
_Static_assert(IBV_QPS_RESET == 0 && IBV_QPS_RTS == 3 && IBV_QPS_SQD == 4 && IBV_QPS_SQE == 5 && IBV_QPS_ERR == 6, "states");

static int put_in_slot(struct sn_context *c, uint32_t slot, struct sn_qp *q)
{
	struct sn_slot *leaf, *none = NULL;

	if (slot >= SOFTNIC_MAX_QP_SLOTS)
		return EPROTO;
	leaf = atomic_load(&c->leaves[slot / SN_LEAF_SLOTS]);
	if (!leaf) {
		leaf = calloc(SN_LEAF_SLOTS, sizeof *leaf);
		if (!leaf)
			return ENOMEM;
		if (!atomic_compare_exchange_strong(&c->leaves[slot / SN_LEAF_SLOTS], &none, leaf)) {
			free(leaf);
			leaf = none;
		}
	}
	leaf += slot % SN_LEAF_SLOTS;
	/* The daemon gives a slot away as soon as its queue pair is destroyed: who destroys it may not have removed it yet, and
	 * who polls may be between number and pointer. Whoever finds the new pointer finds the old number gone. */
	atomic_store_explicit(&leaf->qpn, 0, memory_order_relaxed);
	atomic_store_explicit(&leaf->qp, q, memory_order_release);
	atomic_store_explicit(&leaf->qpn, q->ex.qp_base.qp_num, memory_order_release);
	return 0;
}

/* The daemon may have given the slot to another already. */
static void remove_from_slot(struct sn_context *c, struct sn_qp *q)
{
	struct sn_slot *leaf = atomic_load(&c->leaves[q->slot / SN_LEAF_SLOTS]) + q->slot % SN_LEAF_SLOTS;
	unsigned qpn = q->ex.qp_base.qp_num;

	atomic_compare_exchange_strong(&leaf->qpn, &qpn, 0);
}

/* Two completion queues are locked in the order of their addresses. Queues of a queue pair are locked after them, since
 * who is between start_poll and end_poll may post. */
static void lock_cqs(struct sn_qp *q)
{
	struct sn_cq *a = q->ex.qp_base.send_cq ? sn_cq_of(q->ex.qp_base.send_cq) : NULL;
	struct sn_cq *b = q->ex.qp_base.recv_cq ? sn_cq_of(q->ex.qp_base.recv_cq) : NULL;

	if (a == b)
		b = NULL;
	if (a && b && (uintptr_t)b < (uintptr_t)a) {
		struct sn_cq *t = a;

		a = b;
		b = t;
	}
	if (a)
		sn_lock(&a->lock);
	if (b)
		sn_lock(&b->lock);
}

static void unlock_cqs(struct sn_qp *q)
{
	struct ibv_cq *a = q->ex.qp_base.send_cq, *b = q->ex.qp_base.recv_cq;

	if (a)
		sn_unlock(&sn_cq_of(a)->lock);
	if (b && b != a)
		sn_unlock(&sn_cq_of(b)->lock);
}

void sn_qp_init(struct sn_qp *q, struct sn_context *c, struct ibv_pd *pd, enum ibv_qp_type type, void *qp_context)
{
	struct ibv_qp *p = sn_public_qp(q);

	p->context = sn_public(c);
	p->qp_context = qp_context;
	p->pd = pd;
	p->qp_type = type;
	p->state = IBV_QPS_RESET;
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->cond, NULL);
}

static uint64_t block_size(const struct ibv_qp_cap *cap)
{
	return SOFTNIC_QP_HEADER_SIZE + (uint64_t)cap->max_send_wr * softnic_send_stride(cap->max_send_sge, cap->max_inline_data) +
	       (uint64_t)cap->max_recv_wr * softnic_recv_stride(cap->max_recv_sge);
}

static int check_cap(const struct ibv_qp_cap *cap)
{
	return cap->max_send_wr > SN_MAX_DEPTH || cap->max_recv_wr > SN_MAX_DEPTH || cap->max_send_sge > SOFTNIC_MAX_SGE ||
	       cap->max_recv_sge > SOFTNIC_MAX_SGE || cap->max_inline_data > SOFTNIC_MAX_INLINE_LIMIT;
}

/* Lays the queues out for the capacities that the device gave. */
static int lay_out(struct sn_qp *q)
{
	const struct ibv_qp_cap *cap = &q->cap;
	uint32_t send = softnic_send_stride(cap->max_send_sge, cap->max_inline_data), recv = softnic_recv_stride(cap->max_recv_sge);

	if (check_cap(cap) || block_size(cap) > q->block.size || cap->max_send_wr & (cap->max_send_wr - 1) ||
	    cap->max_recv_wr & (cap->max_recv_wr - 1))
		return EPROTO;
	q->header = q->block.mem;
	q->max_inline = cap->max_inline_data;
	q->sq.depth = cap->max_send_wr;
	q->sq.stride = send;
	q->sq.max_sge = cap->max_send_sge;
	q->sq.ring = q->header + SOFTNIC_QP_HEADER_SIZE;
	q->rq.depth = cap->max_recv_wr;
	q->rq.stride = recv;
	q->rq.max_sge = cap->max_recv_sge;
	q->rq.ring = q->sq.ring + (size_t)q->sq.depth * send;
	return 0;
}

/* Asks the device for the queue pair of which everything else is there. */
static int create(struct sn_context *c, struct sn_qp *q, const struct ibv_qp_cap *asked, uint32_t create_flags)
{
	struct ibv_qp *p = sn_public_qp(q);
	struct softnic_ctl_create_qp m = {
		.pd = p->pd->handle, .type = p->qp_type, .send_cq = p->send_cq->handle,
		.recv_cq = p->recv_cq ? p->recv_cq->handle : 0, .srq = p->srq ? p->srq->handle : 0, .sig_all = q->sig_all,
		.max_send_wr = asked->max_send_wr, .max_recv_wr = asked->max_recv_wr, .max_send_sge = asked->max_send_sge,
		.max_recv_sge = asked->max_recv_sge, .max_inline_data = asked->max_inline_data,
		.arena = q->block.arena, .offset = q->block.offset, .cookie = q->cookie, .flags = create_flags,
	};
	struct softnic_ctl_create_qp_reply r;
	int err = sn_call(c, SOFTNIC_CTL_OP_CREATE_QP, &m, sizeof m, &r, sizeof r);

	if (err)
		return err;
	p->handle = r.handle;
	p->qp_num = r.qpn;
	q->slot = r.slot;
	q->shard = r.shard;
	q->cap = (struct ibv_qp_cap){ r.max_send_wr, r.max_recv_wr, r.max_send_sge, r.max_recv_sge, r.max_inline_data };
	err = r.shard < SOFTNIC_MAX_SHARDS ? lay_out(q) : EPROTO;
	if (!err)
		err = put_in_slot(c, q->slot, q);
	if (err)
		sn_call_handle(c, SOFTNIC_CTL_OP_DESTROY_QP, r.handle);
	return err;
}

static void discard(struct sn_context *c, struct sn_qp *q)
{
	sn_block_free(c, &q->block);
	pthread_mutex_destroy(&q->ex.qp_base.mutex);
	pthread_cond_destroy(&q->ex.qp_base.cond);
	free(q->builder);
	free(q);
}

/* Whether the device could make what is asked for; capacities come out as they will be asked for. */
static int judge(struct sn_context *c, const struct ibv_qp_init_attr_ex *a, struct ibv_qp_cap *cap)
{
	bool initiator = a->qp_type == IBV_QPT_XRC_SEND;

	if (a->qp_type != IBV_QPT_RC && a->qp_type != IBV_QPT_UC && a->qp_type != IBV_QPT_UD && !initiator)
		return EOPNOTSUPP;
	if (!a->pd || !a->send_cq || (!a->recv_cq && !initiator))
		return EINVAL;
	if (a->pd->context != sn_public(c) || a->send_cq->context != sn_public(c) || (a->recv_cq && a->recv_cq->context != sn_public(c)) ||
	    (a->srq && a->srq->context != sn_public(c)))
		return EINVAL;
	*cap = a->cap;
	if (initiator || a->srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	return check_cap(cap) ? EINVAL : 0;
}

static struct ibv_qp *create_qp(struct sn_context *c, struct ibv_qp_init_attr_ex *a, uint32_t create_flags)
{
	struct ibv_qp_cap cap, rounded;
	struct sn_qp *q;
	int err = judge(c, a, &cap);

	if (err) {
		errno = err;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	if (!q)
		return NULL; /* errno is set */
	sn_qp_init(q, c, a->pd, a->qp_type, a->qp_context);
	q->ex.qp_base.send_cq = a->send_cq;
	q->ex.qp_base.recv_cq = a->qp_type == IBV_QPT_XRC_SEND ? NULL : a->recv_cq;
	q->ex.qp_base.srq = a->qp_type == IBV_QPT_XRC_SEND ? NULL : a->srq;
	q->sig_all = a->sq_sig_all;
	rounded = cap;
	rounded.max_send_wr = sn_round_depth(cap.max_send_wr);
	rounded.max_recv_wr = sn_round_depth(cap.max_recv_wr);
	err = sn_block_alloc(c, block_size(&rounded), &q->block);
	if (!err) {
		q->cookie = sn_object_add(c, SN_QP, q);
		err = q->cookie ? create(c, q, &cap, create_flags) : ENOMEM;
		if (err && q->cookie)
			sn_object_remove(c, q->cookie);
	}
	if (err) {
		discard(c, q);
		errno = err;
		return NULL;
	}
	a->cap = q->cap;
	return sn_public_qp(q);
}

SN_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_context = attr->qp_context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq,
		.cap = attr->cap, .qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *q = create_qp(sn_context_of(pd->context), &a, 0);

	if (q)
		attr->cap = a.cap;
	return q;
}

/* What of the extended attributes is not offered. */
static int judge_extended(const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (a->comp_mask & ~known)
		return EOPNOTSUPP;
	if (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
		return EOPNOTSUPP;
	if (a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER && a->max_tso_header)
		return EOPNOTSUPP;
	return 0;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct sn_context *c = sn_context_of(context);
	struct ibv_qp_init_attr_ex a = *attr;
	struct ibv_qp *q;
	int err = judge_extended(attr);

	if (err) {
		errno = err;
		return NULL;
	}
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return sn_target_create(c, attr);
	if (!(a.comp_mask & IBV_QP_INIT_ATTR_PD))
		a.pd = NULL;
	q = create_qp(c, &a, a.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? a.create_flags : 0);
	if (!q)
		return NULL;
	if (a.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		err = sn_qp_extend(sn_qp_of(q), a.send_ops_flags);
		if (err) {
			ibv_destroy_qp(q);
			errno = err;
			return NULL;
		}
		sn_qp_of(q)->has_ex = true;
	}
	attr->cap = a.cap;
	return q;
}

SN_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct sn_qp *q = sn_qp_of(qp);

	return q->has_ex ? &q->ex : NULL;
}

/* Empties a work queue. Everything that the device wrote for it is in the completion queue already. Who posts while the
 * device resets may publish after it has cleared the header, which it does not look at in RESET: that is taken back. */
static void forget(struct sn_qp *q, struct sn_wq *w, size_t published, struct ibv_cq *cq)
{
	w->posted = 0;
	atomic_store(&w->done, 0);
	atomic_store(sn_word32(q->header, published), 0);
	w->stale = sn_cq_end(sn_cq_of(cq));
	w->reset = true;
}

/* Takes the queue pair to RESET: both queues are empty afterwards, and completions of before that nobody has polled yet
 * are dropped, as the specification allows and hardware does. */
static int reset(struct sn_qp *q, const struct softnic_ctl_modify_qp *m)
{
	struct ibv_qp *p = sn_public_qp(q);
	int err = sn_call(sn_context_of(p->context), SOFTNIC_CTL_OP_MODIFY_QP, m, sizeof *m, NULL, 0);

	/* In the child of a fork the call has failed: locks may be held by threads that are not there. */
	if (err)
		return err;
	lock_cqs(q);
	sn_lock(&q->sq.lock);
	sn_lock(&q->rq.lock);
	forget(q, &q->sq, SOFTNIC_OFF_SQ_POSTED, p->send_cq);
	if (p->recv_cq)
		forget(q, &q->rq, SOFTNIC_OFF_RQ_POSTED, p->recv_cq);
	sn_unlock(&q->rq.lock);
	sn_unlock(&q->sq.lock);
	unlock_cqs(q);
	return 0;
}

/* Programs give each half of XRC all that RC takes. What only the other half has is not looked at: Linux does so. */
static int own_half(enum ibv_qp_type type, int mask)
{
	switch (type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

SN_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct softnic_ctl_modify_qp m = { .qp = qp->handle };
	struct sn_qp *q = sn_qp_of(qp);
	int err;

	mask = own_half(qp->qp_type, mask);
	m.mask = (uint32_t)mask;
	sn_qp_attr_to(&m.attr, attr, mask);
	if (mask & IBV_QP_AV)
		m.attr.is_global = sn_lid_route(qp->context, &attr->ah_attr, m.attr.dgid, &m.attr.sgid_index);
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET && !q->target)
		err = reset(q, &m);
	else
		err = sn_call(sn_context_of(qp->context), SOFTNIC_CTL_OP_MODIFY_QP, &m, sizeof m, NULL, 0);
	if (!err && mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return err;
}

SN_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct softnic_ctl_handle h = { .handle = qp->handle };
	struct softnic_ctl_query_qp_reply r;
	int err = sn_call(sn_context_of(qp->context), SOFTNIC_CTL_OP_QUERY_QP, &h, sizeof h, &r, sizeof r);

	(void)mask; /* everything is there at once */
	if (err)
		return err;
	sn_qp_attr_from(attr, &r.attr);
	attr->cap = (struct ibv_qp_cap){ r.max_send_wr, r.max_recv_wr, r.max_send_sge, r.max_recv_sge, r.max_inline_data };
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq, .srq = qp->srq,
		.cap = attr->cap, .qp_type = qp->qp_type, .sq_sig_all = (int)r.sig_all,
	};
	qp->state = attr->qp_state;
	return 0;
}

/* Data of READs and WRITEs arrives in the order of its addresses, but may be copied in pieces of any size: no promise. */
SN_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

SN_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct sn_context *c = sn_context_of(qp->context);
	struct sn_qp *q = sn_qp_of(qp);
	int err = sn_destroy(c, SOFTNIC_CTL_OP_DESTROY_QP, qp->handle);

	if (err)
		return err;
	if (!q->target && !sn_forked(c)) {
		lock_cqs(q);
		remove_from_slot(c, q);
		unlock_cqs(q);
	}
	sn_object_remove(c, q->cookie);
	sn_wait_acks(&qp->mutex, &qp->cond, &qp->events_completed, &q->async_events);
	discard(c, q);
	return 0;
}

void sn_install_qp(struct sn_context *c)
{
	c->verbs.create_qp_ex = create_qp_ex;
}
