/* A completion queue changes its size, up and down, under traffic: no completion is lost, doubled or reordered. */
#include "testing.h"

#include <pthread.h>
#include <unistd.h>

/* There are so many writes at least, and more until the size has changed so often. */
enum { WRITES = 30000, RESIZES = 12 };

static struct side a, b;
static _Atomic int done, resized;

static void *resizer(void *arg)
{
	static const int sizes[] = { 65, 1000, 300, 256, 5000, 400 };
	int n = 0;

	(void)arg;
	while (!done) {
		int want = sizes[n++ % 6] + (int)(4 * SIDE_DEPTH), error = ibv_resize_cq(a.cq, want);

		REQUIRE_EQ(error, 0);
		REQUIRE(a.cq->cqe >= want);
		resized = n;
	}
	return NULL;
}

static void traffic(void)
{
	struct ibv_sge sge = side_sge(&a, 0, 16);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	uint64_t posted = 0, taken = 0;
	pthread_t t;

	wr.wr.rdma.remote_addr = (uintptr_t)b.mem;
	wr.wr.rdma.rkey = b.mr->rkey;
	REQUIRE_EQ(pthread_create(&t, NULL, resizer, NULL), 0);
	while (taken < posted || posted < WRITES || resized < RESIZES) {
		while ((posted < WRITES || resized < RESIZES) && posted - taken < SIDE_DEPTH) {
			wr.wr_id = posted++;
			REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
		}
		if (taken < posted)
			REQUIRE_EQ(test_wait(a.cq, IBV_WC_SUCCESS).wr_id, taken++);
	}
	done = 1;
	REQUIRE_EQ(pthread_join(t, NULL), 0);
	test_quiet(a.cq);
}

/* A queue with more completions than the new size keeps its size and them; an empty one may become small. */
static void refusals(void)
{
	struct ibv_sge sge = side_sge(&a, 0, 16);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_device_attr limits;
	int size = a.cq->cqe;
	uint64_t n = 0;

	wr.wr.rdma.remote_addr = (uintptr_t)b.mem;
	wr.wr.rdma.rkey = b.mr->rkey;
	for (; n < SIDE_DEPTH; n++) {
		wr.wr_id = n;
		REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	}
	for (uint64_t i = 0; i < SIDE_DEPTH - 1; i++)
		REQUIRE_EQ(test_wait(a.cq, IBV_WC_SUCCESS).wr_id, i);
	REQUIRE_EQ(test_wait(a.cq, IBV_WC_SUCCESS).wr_id, SIDE_DEPTH - 1);
	REQUIRE_EQ(ibv_query_device(a.context, &limits), 0);
	REQUIRE_EQ(ibv_resize_cq(a.cq, limits.max_cqe + 1), EINVAL);
	REQUIRE_EQ(ibv_resize_cq(a.cq, 0), EINVAL);
	REQUIRE_EQ(ibv_resize_cq(a.cq, -1), EINVAL);
	REQUIRE_EQ(a.cq->cqe, size);
	REQUIRE_EQ(ibv_resize_cq(a.cq, 1), 0);
	REQUIRE(a.cq->cqe >= 1 && a.cq->cqe < size);
	REQUIRE_EQ(ibv_resize_cq(a.cq, SIDE_DEPTH), 0);
	/* as many as it has room for, then there is no way to less */
	for (n = 0; n < SIDE_DEPTH; n++) {
		wr.wr_id = n;
		REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	}
	for (int tries = 0; ibv_resize_cq(a.cq, 1) == 0; tries++) {
		REQUIRE(tries < 1000); /* they are on their way */
		usleep(1000);
	}
	REQUIRE_EQ(ibv_resize_cq(a.cq, 1), EINVAL);
	REQUIRE_EQ(ibv_resize_cq(a.cq, 500), 0);
	for (uint64_t i = 0; i < n; i++)
		REQUIRE_EQ(test_wait(a.cq, IBV_WC_SUCCESS).wr_id, i);
}

static void moderation(void)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 10, .cq_period = 100 } };

	REQUIRE_EQ(ibv_modify_cq(a.cq, &attr), 0);
	attr.attr_mask = 1u << 7;
	REQUIRE_EQ(ibv_modify_cq(a.cq, &attr), EOPNOTSUPP);
}

int main(void)
{
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	traffic();
	refusals();
	moderation();
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
