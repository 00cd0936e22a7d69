/* The iterators of ibv_cq_ex tell what ibv_poll_cq tells, and more: each kind of completion is taken by the one from one
 * queue and by the other from another, and compared field by field. */
#include "testing.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>

#define FIELDS                                                                                                         \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static struct ibv_cq_ex *extended(struct side *s, uint32_t flags)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4 * SIDE_DEPTH, .cq_context = s, .wc_flags = FIELDS, .flags = flags,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(s->context, &attr);

	REQUIRE(cq != NULL);
	REQUIRE(cq->cq_context == s && cq->cqe >= 4 * SIDE_DEPTH);
	REQUIRE_EQ(ibv_destroy_cq(s->cq), 0);
	s->cq = ibv_cq_ex_to_cq(cq);
	return cq;
}

static void start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr none = { 0 };
	uint64_t end = test_now_ns() + 20000000000u;
	int error;

	while ((error = ibv_start_poll(cq, &none)) == ENOENT)
		REQUIRE(test_now_ns() < end);
	REQUIRE_EQ(error, 0);
}

/* The entry at hand against a completion that ibv_poll_cq gave for the same work. */
static void compare(struct ibv_cq_ex *cq, const struct ibv_wc *wc, uint32_t qp_num)
{
	REQUIRE_EQ(cq->wr_id, wc->wr_id);
	REQUIRE_EQ(cq->status, wc->status);
	REQUIRE_EQ(ibv_wc_read_qp_num(cq), qp_num);
	REQUIRE_EQ(ibv_wc_read_vendor_err(cq), wc->vendor_err);
	if (wc->status != IBV_WC_SUCCESS)
		return;
	REQUIRE_EQ(ibv_wc_read_opcode(cq), wc->opcode);
	REQUIRE_EQ(ibv_wc_read_wc_flags(cq), wc->wc_flags);
	REQUIRE_EQ(ibv_wc_read_byte_len(cq), wc->byte_len);
	REQUIRE_EQ(ibv_wc_read_slid(cq), wc->slid);
	REQUIRE_EQ(ibv_wc_read_sl(cq), wc->sl);
	REQUIRE_EQ(ibv_wc_read_dlid_path_bits(cq), wc->dlid_path_bits);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		REQUIRE_EQ(ibv_wc_read_imm_data(cq), wc->imm_data);
}

static void times(struct ibv_cq_ex *cq)
{
	struct ibv_values_ex now = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	uint64_t stamp = ibv_wc_read_completion_ts(cq), wall = ibv_wc_read_completion_wallclock_ns(cq), raw;
	struct timespec t;

	REQUIRE_EQ(ibv_query_rt_values_ex(cq->context, &now), 0);
	REQUIRE_EQ(now.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	raw = (uint64_t)now.raw_clock.tv_sec * 1000000000u + (uint64_t)now.raw_clock.tv_nsec;
	REQUIRE(stamp <= raw && raw - stamp < 20000000000u);
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t real = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;

	REQUIRE(wall <= real + 1000000 && real - wall < 20000000000u);
}

/* a sends to b, whose queue is read by iterators, and to c, by ibv_poll_cq. */
static void messages(struct ibv_context *context)
{
	struct side a, b, a2, c;
	struct ibv_poll_cq_attr none = { 0 }, some = { .comp_mask = 1 };
	struct ibv_cq_ex *sent, *received;

	side_open(&a, context);
	side_open(&a2, context);
	side_open(&b, context);
	side_open(&c, context);
	sent = extended(&a, 0);
	received = extended(&b, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&a2, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	side_qp(&c, IBV_QPT_RC);
	test_connect(&a, &b);
	test_connect(&a2, &c);
	REQUIRE_EQ(ibv_start_poll(sent, &none), ENOENT);
	REQUIRE_EQ(ibv_start_poll(sent, &some), EINVAL);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge = side_sge(&a, 0, 300), sge2 = side_sge(&a2, 0, 300);
		struct ibv_send_wr wr = { .wr_id = 60, .opcode = i ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htonl(0x8899aabb),
					  .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };

		if (i == 2) {
			wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr.wr.rdma.remote_addr = (uintptr_t)b.mem;
			wr.wr.rdma.rkey = b.mr->rkey;
		}
		REQUIRE_EQ(test_post_recv(&b, 61, 0, 300), 0);
		REQUIRE_EQ(test_post_recv(&c, 61, 0, 300), 0);
		REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
		wr.sg_list = &sge2;
		if (i == 2) {
			wr.wr.rdma.remote_addr = (uintptr_t)c.mem;
			wr.wr.rdma.rkey = c.mr->rkey;
		}
		REQUIRE_EQ(test_post_send(a2.qp, &wr), 0);
		struct ibv_wc plain = test_wait(a2.cq, IBV_WC_SUCCESS);

		start(sent);
		compare(sent, &plain, a.qp->qp_num);
		times(sent);
		REQUIRE_EQ(ibv_next_poll(sent), ENOENT);
		ibv_end_poll(sent);
		plain = test_wait(c.cq, IBV_WC_SUCCESS);
		start(received);
		compare(received, &plain, b.qp->qp_num);
		ibv_end_poll(received);
	}

	/* Errors. Both queue pairs end. */
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &a2 : &a;
		struct ibv_sge sge = side_sge(s, 0, 8);
		struct ibv_send_wr wr = { .wr_id = 70, .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1 };

		REQUIRE_EQ(test_post_send(s->qp, &wr), 0);
	}
	struct ibv_wc plain = test_wait(a2.cq, IBV_WC_REM_ACCESS_ERR);

	start(sent);
	compare(sent, &plain, a.qp->qp_num);
	ibv_end_poll(sent);
	side_close(&a);
	side_close(&a2);
	side_close(&b);
	side_close(&c);
}

/* Slots come back and places too: far more completions than the queues hold, taken many at a time. */
static void many(struct ibv_context *context)
{
	struct side a, b;
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_ex *cq;
	uint64_t posted = 0, taken = 0;

	side_open(&a, context);
	side_open(&b, context);
	cq = extended(&a, 0);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	struct ibv_sge sge = side_sge(&a, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };

	wr.wr.rdma.remote_addr = (uintptr_t)b.mem;
	wr.wr.rdma.rkey = b.mr->rkey;
	while (taken < 20000) {
		while (posted < 20000 && posted - taken < SIDE_DEPTH) {
			wr.wr_id = posted++;
			REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
		}
		start(cq);
		do {
			REQUIRE_EQ(cq->wr_id, taken++);
			REQUIRE_EQ(cq->status, IBV_WC_SUCCESS);
		} while (ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
		/* The older interface works on the same queue. */
		if (taken % 100 < 50 && posted > taken)
			REQUIRE_EQ(test_wait(a.cq, IBV_WC_SUCCESS).wr_id, taken++);
	}
	REQUIRE_EQ(ibv_start_poll(cq, &none), ENOENT);
	side_close(&a);
	side_close(&b);
}

/* Two threads iterate: each completion comes to one of them. */
static struct ibv_cq_ex *shared;
static _Atomic long long count, sum;

static void *iterate(void *arg)
{
	struct ibv_poll_cq_attr none = { 0 };
	uint64_t end = test_now_ns() + 20000000000u;

	(void)arg;
	while (count < 4000) {
		REQUIRE(test_now_ns() < end);
		if (ibv_start_poll(shared, &none))
			continue;
		do {
			sum += (long long)shared->wr_id;
			count++;
		} while (ibv_next_poll(shared) == 0);
		ibv_end_poll(shared);
	}
	return NULL;
}

static void threads(struct ibv_context *context)
{
	struct side a, b;
	pthread_t t[2];

	side_open(&a, context);
	side_open(&b, context);
	shared = extended(&a, 0);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	struct ibv_sge sge = side_sge(&a, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };

	wr.wr.rdma.remote_addr = (uintptr_t)b.mem;
	wr.wr.rdma.rkey = b.mr->rkey;
	for (int i = 0; i < 2; i++)
		REQUIRE_EQ(pthread_create(&t[i], NULL, iterate, NULL), 0);
	for (uint64_t i = 0; i < 4000;) {
		wr.wr_id = i;
		int error = test_post_send(a.qp, &wr);

		REQUIRE(error == 0 || error == ENOMEM);
		if (!error)
			i++;
		else
			sched_yield();
	}
	for (int i = 0; i < 2; i++)
		REQUIRE_EQ(pthread_join(t[i], NULL), 0);
	REQUIRE_EQ(count, 4000);
	REQUIRE_EQ(sum, 4000 * 3999 / 2);
	side_close(&a);
	side_close(&b);
}

int main(void)
{
	struct ibv_context *context = test_open();
	struct ibv_cq_init_attr_ex attr = { .cqe = 10, .wc_flags = IBV_WC_EX_WITH_TM_INFO };

	REQUIRE_ERRNO(ibv_create_cq_ex(context, &attr), EOPNOTSUPP);
	messages(context);
	many(context);
	threads(context);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
