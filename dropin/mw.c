/* Memory windows. One of type 1 is bound by ibv_bind_mw, which gives it the next key; one of type 2 by a request of a send
 * queue, under a key whose low 8 bits the application chose. The device checks everything else, and says what is wrong in
 * the completion: IBV_WC_MW_BIND_ERR. */
#include <stdlib.h>

#include "ring.h"

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct sn_context *c = sn_context_of(pd->context);
	struct softnic_ctl_alloc_mw m = { .pd = pd->handle, .type = (uint32_t)type };
	struct softnic_ctl_alloc_mw_reply r;
	struct sn_mw *w = calloc(1, sizeof(*w));
	int error = w ? sn_call(c, SOFTNIC_CTL_OP_ALLOC_MW, &m, sizeof(m), &r, sizeof(r)) : ENOMEM;

	if (error) {
		free(w);
		errno = error;
		return NULL;
	}
	w->mw = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = r.rkey, .handle = r.handle, .type = type };
	return &w->mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	int error = sn_destroy(sn_context_of(mw->context), SOFTNIC_CTL_OP_DEALLOC_MW, mw->handle);

	if (!error)
		free(sn_mw_of(mw));
	return error;
}

/* What a bind writes into its request. A window gives rights to the peer only; that many programs name the local right as
 * well means nothing (IBA 10.6.7.2). */
static void describe(struct softnic_send_wqe *w, const struct ibv_mw *mw, uint32_t key, const struct ibv_mw_bind_info *info)
{
	w->imm = mw->handle;
	w->rkey = key;
	w->remote_addr = info->addr;
	w->operand = info->length;
	w->compare = (uint64_t)(info->mr ? info->mr->lkey : 0) << 32 | (info->mw_access_flags & ~(unsigned int)IBV_ACCESS_LOCAL_WRITE);
}

/* The key of a window goes on with each bind that is posted, in the order of posting. */
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct sn_qp *q = sn_qp_of(qp);
	uint8_t *slot;
	int error;

	if (mw->type != IBV_MW_TYPE_1 || mw->context != qp->context || (bind->bind_info.mr && bind->bind_info.mr->context != qp->context))
		return EINVAL;
	if (sn_forked(sn_context_of(qp->context)))
		return EIO;
	sn_lock(&q->sq.lock);
	error = sn_send_ready(q);
	slot = error ? NULL : sn_send_slot(q);
	if (slot) {
		struct softnic_send_wqe w = { .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW,
					      .flags = (uint8_t)(bind->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) };

		sn_lock(&sn_mw_of(mw)->lock);
		describe(&w, mw, ibv_inc_rkey(mw->rkey), &bind->bind_info);
		memcpy(slot, &w, sizeof(w));
		mw->rkey = w.rkey;
		q->sq.posted++;
		sn_publish_send(q);
		sn_unlock(&sn_mw_of(mw)->lock);
	} else if (!error) {
		error = ENOMEM;
	}
	sn_unlock(&q->sq.lock);
	return error;
}

/* Of a window of type 2 nothing changes here: its key is the application's affair. */
int sn_bind_fill(struct sn_qp *q, const struct ibv_send_wr *wr, struct softnic_send_wqe *w)
{
	const struct ibv_mw *mw = wr->bind_mw.mw;
	const struct ibv_mr *mr = wr->bind_mw.bind_info.mr;

	if (!mw || mw->type != IBV_MW_TYPE_2 || mw->context != q->ex.qp_base.context || (mr && mr->context != mw->context))
		return EINVAL;
	describe(w, mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	return 0;
}

void sn_install_mw(struct sn_context *c)
{
	struct ibv_context_ops *ops = &sn_public(c)->ops;

	ops->alloc_mw = alloc_mw;
	ops->dealloc_mw = dealloc_mw;
	ops->bind_mw = bind_mw;
}
