/* Asynchronous events. */
#include "softnic.h"

#include <unistd.h>

_Static_assert(IBV_EVENT_CQ_ERR == 0 && IBV_EVENT_DEVICE_FATAL == 8 && IBV_EVENT_SRQ_ERR == 14 && IBV_EVENT_SRQ_LIMIT_REACHED == 15 &&
	       IBV_EVENT_QP_LAST_WQE_REACHED == 16 && IBV_EVENT_GID_CHANGE == 18, "event types");

static void deliver_cq(void *object) { ((struct sn_cq *)object)->async_events++; }

static void deliver_qp(void *object) { ((struct sn_qp *)object)->async_events++; }

static void deliver_srq(void *object) { ((struct sn_srq *)object)->async_events++; }

/* Finds what the event is about; false if that is no more. */
static bool resolve(struct sn_context *c, const struct softnic_ctl_async_event *e, struct ibv_async_event *event)
{
	void *o;

	event->event_type = (enum ibv_event_type)e->type;
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		o = sn_object_event(c, SN_CQ, e->cookie, deliver_cq);
		event->element.cq = o;
		return o;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		o = sn_object_event(c, SN_SRQ, e->cookie, deliver_srq);
		event->element.srq = o;
		return o;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		o = sn_object_event(c, SN_QP, e->cookie, deliver_qp);
		event->element.qp = o;
		return o;
	case IBV_EVENT_DEVICE_FATAL:
		atomic_store(&c->fatal_told, true); /* a daemon that goes down says so before it closes the socket */
		return true;
	default:
		event->element.port_num = (int)e->handle;
		return true;
	}
}

/* The end of the socket is the daemon's: it is told once as the device's failure. */
static int device_fatal(struct sn_context *c, struct ibv_async_event *event)
{
	int live = SN_LIVE;

	atomic_compare_exchange_strong(&c->state, &live, SN_GONE);
	if (atomic_exchange(&c->fatal_told, true)) {
		errno = EIO;
		return -1;
	}
	memset(event, 0, sizeof *event);
	event->event_type = IBV_EVENT_DEVICE_FATAL;
	return 0;
}

/* Returns -1 and sets errno when there is none, or never will be. */
SN_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct sn_context *c = sn_context_of(context);
	struct softnic_ctl_async_event e;

	do {
		ssize_t n = read(context->async_fd, &e, sizeof e);

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return device_fatal(c, event);
		if (n < 0)
			return -1;
		if (n != (ssize_t)sizeof e) {
			errno = EIO;
			return -1;
		}
	} while (!resolve(c, &e, event));
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(mutex);
}

SN_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;

		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;

		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;

		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
	default:
		break;
	}
}

void sn_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, const uint32_t *delivered)
{
	pthread_mutex_lock(mutex);
	while (*completed != *delivered)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}
