/* A shared receive queue under two queue pairs: order, limit event, resize under traffic, refusals. */
#include "testing.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

static struct side a, b, c;

static void send_one(struct side *from, uint64_t id)
{
	struct ibv_sge sge = side_sge(from, 0, 32);
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };

	REQUIRE_EQ(test_post_send(from->qp, &wr), 0);
	REQUIRE_EQ(test_wait(from->cq, IBV_WC_SUCCESS).wr_id, id);
}

/* The event that the limit was reached comes once, and the limit is disarmed. */
static void limit(struct ibv_context *context)
{
	struct ibv_srq_attr attr = { .srq_limit = 5 };
	struct ibv_async_event event;
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };

	for (uint64_t i = 0; i < 8; i++)
		REQUIRE_EQ(test_post_recv(&b, i, 64 * i, 64), 0);
	REQUIRE_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), 0);
	REQUIRE_EQ(ibv_query_srq(b.srq, &attr), 0);
	REQUIRE_EQ(attr.srq_limit, 5);
	REQUIRE_EQ(attr.max_wr, SIDE_DEPTH);
	for (uint64_t i = 0; i < 4; i++) {
		send_one(&a, i);
		struct ibv_wc wc = test_wait(b.cq, IBV_WC_SUCCESS);

		REQUIRE_EQ(wc.wr_id, i); /* in the order of posting */
		REQUIRE_EQ(wc.qp_num, b.qp->qp_num);
	}
	REQUIRE_EQ(poll(&fd, 1, 10000), 1);
	REQUIRE_EQ(ibv_get_async_event(context, &event), 0);
	REQUIRE_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	REQUIRE(event.element.srq == b.srq);
	REQUIRE(event.element.srq->srq_context == &b);
	ibv_ack_async_event(&event);
	REQUIRE_EQ(ibv_query_srq(b.srq, &attr), 0);
	REQUIRE_EQ(attr.srq_limit, 0);
	REQUIRE_EQ(poll(&fd, 1, 20), 0);
	attr.srq_limit = 10000;
	REQUIRE_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	/* four receives are left; the other queue pair takes them as well */
	for (uint64_t i = 4; i < 8; i++) {
		struct side *from = i % 2 ? &a : &c;

		send_one(from, i);
		REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, i);
	}
}

static void resize(void)
{
	struct ibv_srq_attr attr = { .max_wr = 4 * SIDE_DEPTH };
	uint64_t posted = 0, taken = 0;

	for (; posted < SIDE_DEPTH; posted++)
		REQUIRE_EQ(test_post_recv(&b, posted, 0, 64), 0);
	REQUIRE_EQ(test_post_recv(&b, posted, 0, 64), ENOMEM);
	for (; taken < 10; taken++) {
		send_one(&a, 0);
		REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, taken);
	}
	REQUIRE_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_MAX_WR), 0);
	for (; posted < 3 * SIDE_DEPTH; posted++)
		REQUIRE_EQ(test_post_recv(&b, posted, 0, 64), 0);
	attr.max_wr = SIDE_DEPTH;
	REQUIRE_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	for (; taken < posted; taken++) {
		send_one(taken % 3 ? &a : &c, 0);
		REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, taken);
	}
	REQUIRE_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_MAX_WR), 0);
	REQUIRE_EQ(test_post_recv(&b, 5, 0, 64), 0);
	send_one(&a, 0);
	REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, 5);
}

static atomic_bool stop;
static atomic_uint resized;

/* Sizes come and go; all have room for what is posted. */
static void *resize_all_the_time(void *unused)
{
	(void)unused;
	for (uint32_t i = 0; !atomic_load(&stop); i++) {
		struct ibv_srq_attr attr = { .max_wr = SIDE_DEPTH << i % 3 };

		REQUIRE_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_MAX_WR), 0);
		atomic_fetch_add(&resized, 1);
	}
	return NULL;
}

/* While the queue is resized receives are posted and taken: none is lost, none is doubled, and there is a place for each
 * that was taken. */
static void resize_meanwhile(void)
{
	uint64_t posted = 0, taken = 0;
	pthread_t thread;

	for (; posted < SIDE_DEPTH; posted++)
		REQUIRE_EQ(test_post_recv(&b, posted, 0, 64), 0);
	REQUIRE_EQ(pthread_create(&thread, NULL, resize_all_the_time, NULL), 0);
	for (; taken < 1000 || atomic_load(&resized) < 50; taken++) {
		send_one(taken % 3 ? &a : &c, 0);
		REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, taken);
		REQUIRE_EQ(test_post_recv(&b, posted++, 0, 64), 0);
	}
	atomic_store(&stop, true);
	REQUIRE_EQ(pthread_join(thread, NULL), 0);
	for (; taken < posted; taken++) {
		send_one(&a, 0);
		REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, taken);
	}
}

static void refusals(void)
{
	struct ibv_sge sge[SIDE_SGE + 1] = { 0 };
	struct ibv_recv_wr wr[2] = { { .wr_id = 1, .next = &wr[1], .sg_list = sge, .num_sge = 1 },
				     { .wr_id = 2, .sg_list = sge, .num_sge = SIDE_SGE + 1 } };
	struct ibv_recv_wr *bad = NULL;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1u << 30, .max_sge = 1 } };
	uint32_t number;

	sge[0] = side_sge(&b, 0, 64);
	REQUIRE_EQ(ibv_post_srq_recv(b.srq, wr, &bad), EINVAL);
	REQUIRE(bad == &wr[1]);
	bad = NULL;
	REQUIRE_EQ(ibv_post_recv(b.qp, &wr[0], &bad), EINVAL); /* the queue pair has no receive queue of its own */
	send_one(&a, 0);
	REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).wr_id, 1);
	REQUIRE_ERRNO(ibv_create_srq(b.pd, &attr), EINVAL);
	REQUIRE(ibv_get_srq_num(b.srq, &number) != 0);
	REQUIRE_EQ(ibv_destroy_srq(b.srq), EBUSY);
}

int main(void)
{
	struct ibv_context *context = test_open();
	struct ibv_srq_init_attr attr = { .srq_context = &b, .attr = { .max_wr = SIDE_DEPTH, .max_sge = SIDE_SGE } };
	struct ibv_qp *second;
	struct ibv_qp *first;

	side_open(&a, context);
	side_open(&b, context);
	side_open(&c, context);
	b.srq = ibv_create_srq(b.pd, &attr);
	REQUIRE(b.srq != NULL);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&c, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	second = b.qp;
	side_qp(&b, IBV_QPT_RC);
	first = b.qp;
	REQUIRE(first->srq == b.srq);
	test_ready(a.qp, first->qp_num);
	test_ready(first, a.qp->qp_num);
	test_ready(c.qp, second->qp_num);
	test_ready(second, c.qp->qp_num);
	limit(context);
	resize();
	resize_meanwhile();
	refusals();
	REQUIRE_EQ(ibv_destroy_qp(second), 0);
	side_close(&a);
	side_close(&b);
	side_close(&c);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
