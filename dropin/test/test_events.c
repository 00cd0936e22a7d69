/* Completion events and asynchronous events, by descriptors that poll(2) knows. */
#include "testing.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static int readable(int fd, int milliseconds)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, milliseconds);
}

/* A queue that is armed makes one event; solicited ones count alone where that was asked. */
static void completions(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct side a, b;
	struct ibv_cq *cq;
	void *cq_context;

	REQUIRE(channel != NULL);
	side_open(&a, context);
	side_open(&b, context);
	REQUIRE_EQ(ibv_destroy_cq(b.cq), 0);
	b.cq = ibv_create_cq(context, 100, &b, channel, 0);
	REQUIRE(b.cq != NULL);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	REQUIRE_EQ(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
	REQUIRE_EQ(ibv_get_cq_event(channel, &cq, &cq_context), -1);
	REQUIRE_EQ(errno, EAGAIN);
	test_message(&a, &b, 10); /* not armed */
	REQUIRE_EQ(readable(channel->fd, 20), 0);
	for (int i = 0; i < 3; i++) {
		REQUIRE_EQ(ibv_req_notify_cq(b.cq, 0), 0);
		test_message(&a, &b, 10);
		REQUIRE_EQ(readable(channel->fd, 10000), 1);
		REQUIRE_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
		REQUIRE(cq == b.cq && cq_context == &b);
		REQUIRE_EQ(readable(channel->fd, 0), 0);
		ibv_ack_cq_events(cq, 1);
	}
	REQUIRE_EQ(ibv_req_notify_cq(b.cq, 1), 0);
	test_message(&a, &b, 10);
	REQUIRE_EQ(readable(channel->fd, 20), 0);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED };

	REQUIRE_EQ(test_post_recv(&b, 1, 0, 10), 0);
	REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	REQUIRE_EQ(readable(channel->fd, 10000), 1);
	REQUIRE_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
	ibv_ack_cq_events(cq, 1);
	test_wait(a.cq, IBV_WC_SUCCESS);
	test_wait(b.cq, IBV_WC_SUCCESS);
	REQUIRE_EQ(ibv_destroy_comp_channel(channel), EBUSY);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_destroy_comp_channel(channel), 0);
}

static void expect(struct ibv_context *context, enum ibv_event_type want, struct ibv_async_event *event)
{
	REQUIRE_EQ(readable(context->async_fd, 10000), 1);
	REQUIRE_EQ(ibv_get_async_event(context, event), 0);
	REQUIRE_EQ(event->event_type, want);
}

static void *acknowledge_later(void *event)
{
	usleep(50000);
	ibv_ack_async_event(event);
	return NULL;
}

/* An access violation is told to the queue pair that was violated, and destroying it waits until the event that was got
 * is acknowledged. */
static void access_error(struct ibv_context *context)
{
	struct side a, b;
	struct ibv_async_event event;
	pthread_t t;

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	struct ibv_sge sge = side_sge(&a, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };

	REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	test_wait(a.cq, IBV_WC_REM_ACCESS_ERR);
	expect(context, IBV_EVENT_QP_ACCESS_ERR, &event);
	REQUIRE(event.element.qp == b.qp);
	uint64_t before = test_now_ns();

	REQUIRE_EQ(pthread_create(&t, NULL, acknowledge_later, &event), 0);
	side_close(&b);
	REQUIRE(test_now_ns() - before > 30000000);
	REQUIRE_EQ(pthread_join(t, NULL), 0);
	side_close(&a);
}

/* A queue that overruns says so, and its queue pairs end. */
static void overrun(struct ibv_context *context)
{
	struct side a, b;
	struct ibv_async_event event;
	struct ibv_wc wc;
	bool queue = false;
	int n = 0, got;

	side_open(&a, context);
	side_open(&b, context);
	REQUIRE_EQ(ibv_destroy_cq(b.cq), 0);
	b.cq = ibv_create_cq(context, 128, &b, NULL, 0);
	REQUIRE(b.cq != NULL);
	struct ibv_qp_init_attr_ex attr = side_init_attr(&b, IBV_QPT_RC);

	attr.cap.max_recv_wr = 256;
	b.qp = ibv_create_qp_ex(context, &attr);
	REQUIRE(b.qp != NULL);
	side_qp(&a, IBV_QPT_RC);
	test_connect(&a, &b);
	for (int i = 0; i < b.cq->cqe + 1; i++)
		REQUIRE_EQ(test_post_recv(&b, (uint64_t)i, 0, 8), 0);
	for (int i = 0; i < b.cq->cqe + 1; i++) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };

		REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
		if (i < b.cq->cqe)
			test_wait(a.cq, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 2; i++) {
		REQUIRE_EQ(readable(context->async_fd, 10000), 1);
		REQUIRE_EQ(ibv_get_async_event(context, &event), 0);
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			REQUIRE(event.element.cq == b.cq);
			queue = true;
		} else {
			REQUIRE(event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == b.qp);
		}
		ibv_ack_async_event(&event);
		if (queue && readable(context->async_fd, 200) == 0)
			break;
	}
	REQUIRE(queue);
	while ((got = ibv_poll_cq(b.cq, 1, &wc)) > 0)
		REQUIRE_EQ(wc.wr_id, n++);
	REQUIRE_EQ(n, b.cq->cqe);
	REQUIRE(got < 0);
	side_close(&a);
	side_close(&b);
	while (readable(context->async_fd, 50)) {
		REQUIRE_EQ(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK), 0);
		if (ibv_get_async_event(context, &event) == 0)
			ibv_ack_async_event(&event);
	}
}

int main(void)
{
	struct ibv_context *context = test_open();

	completions(context);
	access_error(context);
	overrun(context);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
