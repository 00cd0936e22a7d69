/* Extended reliable connections: domains that processes of a node share, and targets, queue pairs without queues, whose
 * messages go to the shared receive queue that each of them names. */
#include <fcntl.h>
#include <stdlib.h>

#include "softnic.h"

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needs = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct softnic_ctl_open_xrcd m = { .flags = (uint32_t)attr->oflags & (O_CREAT | O_EXCL) };
	struct softnic_ctl_handle_reply r;
	struct sn_fds send = { .n = attr->fd == -1 ? 0 : 1, .fd = { attr->fd } };
	struct sn_xrcd *x;
	int error;

	if (attr->comp_mask != needs) {
		errno = attr->comp_mask & ~needs ? EOPNOTSUPP : EINVAL;
		return NULL;
	}
	x = calloc(1, sizeof(*x));
	error = x ? sn_call_fds(sn_context_of(context), SOFTNIC_CTL_OP_OPEN_XRCD, &m, sizeof(m), &r, sizeof(r), &send, NULL) : ENOMEM;
	if (error) {
		free(x);
		errno = error;
		return NULL;
	}
	x->xrcd.context = context;
	x->handle = r.handle;
	return &x->xrcd;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct sn_xrcd *x = sn_xrcd_of(xrcd);
	int error = sn_destroy(sn_context_of(xrcd->context), SOFTNIC_CTL_OP_CLOSE_XRCD, x->handle);

	if (!error)
		free(x);
	return error;
}

/* The block of every target: its state stays RESET, in which nothing can be posted. */
static _Alignas(SOFTNIC_CACHE_LINE) uint8_t no_queues[SOFTNIC_QP_HEADER_SIZE];

/* Makes the application's side of a target, and the device's by op, whose request has the cookie at cookie. */
static struct ibv_qp *add_target(struct sn_context *c, void *qp_context, uint16_t op, const void *request, size_t size, uint64_t *cookie)
{
	struct softnic_ctl_create_qp_reply r;
	struct sn_qp *q = calloc(1, sizeof(*q));
	int error = ENOMEM;

	if (!q)
		goto failed;
	sn_qp_init(q, c, NULL, IBV_QPT_XRC_RECV, qp_context);
	q->target = true;
	q->header = no_queues;
	*cookie = q->cookie = sn_object_add(c, SN_QP, q);
	if (!q->cookie)
		goto freed;
	error = sn_call(c, op, request, size, &r, sizeof(r));
	if (!error) {
		q->ex.qp_base.handle = r.handle;
		q->ex.qp_base.qp_num = r.qpn;
		return sn_public_qp(q);
	}
	sn_object_remove(c, q->cookie);
freed:
	pthread_cond_destroy(&q->ex.qp_base.cond);
	pthread_mutex_destroy(&q->ex.qp_base.mutex);
failed:
	free(q);
	errno = error;
	return NULL;
}

struct ibv_qp *sn_target_create(struct sn_context *c, struct ibv_qp_init_attr_ex *attr)
{
	struct softnic_ctl_create_target m = { 0 };

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd || attr->xrcd->context != sn_public(c)) {
		errno = EINVAL;
		return NULL;
	}
	m.xrcd = sn_xrcd_of(attr->xrcd)->handle;
	return add_target(c, attr->qp_context, SOFTNIC_CTL_OP_CREATE_TARGET, &m, sizeof(m), &m.cookie);
}

static struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needs = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct softnic_ctl_open_target m = { .qpn = attr->qp_num };

	if ((attr->comp_mask & needs) != needs || attr->qp_type != IBV_QPT_XRC_RECV || !attr->xrcd || attr->xrcd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	m.xrcd = sn_xrcd_of(attr->xrcd)->handle;
	return add_target(sn_context_of(context), attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL,
			  SOFTNIC_CTL_OP_OPEN_TARGET, &m, sizeof(m), &m.cookie);
}

void sn_install_xrc(struct sn_context *c)
{
	c->verbs.open_xrcd = open_xrcd;
	c->verbs.close_xrcd = close_xrcd;
	c->verbs.open_qp = open_qp;
}
