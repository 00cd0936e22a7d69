/* Completion channels: descriptors from which completion events are read. */
#include "softnic.h"

#include <stdlib.h>
#include <unistd.h>

SN_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct sn_channel *ch = calloc(1, sizeof *ch);
	struct softnic_ctl_handle_reply r;
	struct sn_fds got = { .n = 0 };
	int err = ch ? sn_call_fds(sn_context_of(context), SOFTNIC_CTL_OP_CREATE_CHANNEL, NULL, 0, &r, sizeof r, NULL, &got) : ENOMEM;

	if (!err && got.n != 1) {
		while (got.n > 0)
			close(got.fd[--got.n]);
		err = EPROTO;
	}
	if (!err)
		err = sn_make_blocking(got.fd[0]);
	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->channel.context = context;
	ch->channel.fd = got.fd[0];
	ch->handle = r.handle;
	return &ch->channel;
}

SN_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct ibv_context *context = channel->context;
	int err = 0;

	pthread_mutex_lock(&context->mutex);
	if (channel->refcnt)
		err = EBUSY;
	pthread_mutex_unlock(&context->mutex);
	if (!err)
		err = sn_destroy(sn_context_of(context), SOFTNIC_CTL_OP_DESTROY_CHANNEL, sn_channel_of(channel)->handle);
	if (err)
		return err;
	close(channel->fd);
	free(sn_channel_of(channel));
	return 0;
}

static void deliver(void *object) { ((struct sn_cq *)object)->comp_events++; }

/* Returns -1 and sets errno: EAGAIN when the application made the descriptor nonblocking and there is no event, EIO when
 * the daemon is gone. Several events of a queue that the daemon had to keep back come as one. */
SN_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct sn_context *c = sn_context_of(channel->context);
	struct softnic_ctl_channel_event e;
	struct sn_cq *q;

	do {
		ssize_t n = read(channel->fd, &e, sizeof e);

		if (n < 0)
			return -1;
		if (n != (ssize_t)sizeof e) {
			errno = EIO;
			return -1;
		}
		q = sn_object_event(c, SN_CQ, e.cookie, deliver);
	} while (!q); /* of a queue that is no more */
	*cq = sn_public_cq(q);
	*cq_context = q->ex.cq_context;
	return 0;
}

SN_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
