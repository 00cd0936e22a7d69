/* Every operation of a reliable connection between two queue pairs of one context, by ibv_post_send and ibv_poll_cq. */
#include "testing.h"

#include <arpa/inet.h>

static void operation(struct side *a, struct ibv_send_wr *wr, enum ibv_wc_opcode want)
{
	wr->wr_id = 0x1000 + (uint64_t)wr->opcode;
	wr->send_flags |= IBV_SEND_SIGNALED;
	REQUIRE_EQ(test_post_send(a->qp, wr), 0);
	struct ibv_wc wc = test_wait(a->cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.wr_id, wr->wr_id);
	REQUIRE_EQ(wc.opcode, want);
	REQUIRE_EQ(wc.qp_num, a->qp->qp_num);
}

static void writes_and_reads(struct side *a, struct side *b)
{
	struct ibv_sge sge = side_sge(a, 0, 5000);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };

	for (size_t i = 0; i < 5000; i++)
		a->mem[i] = (uint8_t)(i * 7);
	wr.wr.rdma.remote_addr = (uintptr_t)b->mem + 100;
	wr.wr.rdma.rkey = b->mr->rkey;
	operation(a, &wr, IBV_WC_RDMA_WRITE);
	REQUIRE(memcmp(a->mem, b->mem + 100, 5000) == 0);

	sge.addr += 8192;
	wr.opcode = IBV_WR_RDMA_READ;
	operation(a, &wr, IBV_WC_RDMA_READ);
	REQUIRE(memcmp(a->mem + 8192, b->mem + 100, 5000) == 0);

	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htonl(0x01020304);
	REQUIRE_EQ(test_post_recv(b, 3, 0, 0), 0);
	operation(a, &wr, IBV_WC_RDMA_WRITE);
	struct ibv_wc wc = test_wait(b->cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	REQUIRE_EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	REQUIRE_EQ(ntohl(wc.imm_data), 0x01020304);
	REQUIRE_EQ(wc.byte_len, 5000);
}

static void atomics(struct side *a, struct side *b)
{
	struct ibv_sge sge = side_sge(a, 16, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1 };
	uint64_t value = 40, got;

	memcpy(b->mem + 64, &value, 8);
	wr.wr.atomic.remote_addr = (uintptr_t)b->mem + 64;
	wr.wr.atomic.rkey = b->mr->rkey;
	wr.wr.atomic.compare_add = 2;
	operation(a, &wr, IBV_WC_FETCH_ADD);
	memcpy(&got, a->mem + 16, 8);
	REQUIRE_EQ(got, 40);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 77;
	operation(a, &wr, IBV_WC_COMP_SWAP);
	memcpy(&got, a->mem + 16, 8);
	REQUIRE_EQ(got, 42);
	memcpy(&got, b->mem + 64, 8);
	REQUIRE_EQ(got, 77);
}

static void sends(struct side *a, struct side *b)
{
	struct ibv_sge list[3] = { side_sge(a, 0, 3), side_sge(a, 1000, 4), side_sge(a, 2000, 5) };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(9), .sg_list = list, .num_sge = 3 };
	struct ibv_wc wc;

	memcpy(a->mem, "abc", 3);
	memcpy(a->mem + 1000, "defg", 4);
	memcpy(a->mem + 2000, "hijkl", 5);
	REQUIRE_EQ(test_post_recv(b, 1, 300, 12), 0);
	operation(a, &wr, IBV_WC_SEND);
	wc = test_wait(b->cq, IBV_WC_SUCCESS);
	REQUIRE_EQ(ntohl(wc.imm_data), 9);
	REQUIRE(memcmp(b->mem + 300, "abcdefghijkl", 12) == 0);

	/* Inline data needs no key and may be overwritten at once. */
	char text[2][6] = { "inline", "as two" };
	struct ibv_sge inl[2] = { { .addr = (uintptr_t)text[0], .length = 6 }, { .addr = (uintptr_t)text[1], .length = 5 } };

	wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .sg_list = inl, .num_sge = 2, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED };
	REQUIRE_EQ(test_post_recv(b, 2, 400, 12), 0);
	REQUIRE_EQ(test_post_send(a->qp, &wr), 0);
	memset(text, 'x', sizeof(text));
	REQUIRE_EQ(test_wait(a->cq, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
	wc = test_wait(b->cq, IBV_WC_SUCCESS);
	REQUIRE_EQ(wc.byte_len, 11);
	REQUIRE(memcmp(b->mem + 400, "inlineas tw", 11) == 0);

	test_message(a, b, 0);
	test_message(a, b, 1);
	test_message(b, a, 1024);
	test_message(a, b, 20000);
}

/* A list of requests stops at the first that is refused, and that one is named. */
static void refusals(struct side *a, struct side *b)
{
	struct ibv_sge sge[SIDE_SGE + 1];
	struct ibv_send_wr wr[2], *bad = NULL;
	char text[4096] = { 0 };

	for (int i = 0; i <= SIDE_SGE; i++)
		sge[i] = side_sge(a, 0, 1);
	memset(wr, 0, sizeof(wr));
	wr[0] = (struct ibv_send_wr){ .wr_id = 1, .next = &wr[1], .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	wr[1] = (struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = SIDE_SGE + 1 };
	REQUIRE_EQ(test_post_recv(b, 5, 0, 8), 0);
	REQUIRE_EQ(ibv_post_send(a->qp, wr, &bad), EINVAL);
	REQUIRE(bad == &wr[1]);
	REQUIRE_EQ(test_wait(a->cq, IBV_WC_SUCCESS).wr_id, 1);
	REQUIRE_EQ(test_wait(b->cq, IBV_WC_SUCCESS).wr_id, 5);

	struct ibv_sge inl = { .addr = (uintptr_t)text, .length = sizeof(text) };

	wr[0] = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .sg_list = &inl, .num_sge = 1, .send_flags = IBV_SEND_INLINE };
	REQUIRE_EQ(test_post_send(a->qp, wr), EINVAL);
	wr[0].num_sge = -1;
	REQUIRE_EQ(test_post_send(a->qp, wr), EINVAL);
	wr[0].send_flags = 0;
	REQUIRE_EQ(test_post_send(a->qp, wr), EINVAL);

	struct ibv_recv_wr recv = { .sg_list = sge, .num_sge = SIDE_SGE + 1 }, *bad_recv = NULL;

	REQUIRE_EQ(ibv_post_recv(b->qp, &recv, &bad_recv), EINVAL);
	REQUIRE(bad_recv == &recv);
	recv.num_sge = -1;
	REQUIRE_EQ(ibv_post_recv(b->qp, &recv, &bad_recv), EINVAL);
}

/* Slots come back as completions are polled; a full queue says ENOMEM. */
static void full(struct side *a, struct side *b)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_sge sge = side_sge(a, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	unsigned n = 0;

	wr.wr.rdma.remote_addr = (uintptr_t)b->mem;
	wr.wr.rdma.rkey = b->mr->rkey;
	REQUIRE_EQ(ibv_query_qp(a->qp, &attr, IBV_QP_CAP | IBV_QP_STATE, &init), 0);
	REQUIRE_EQ(attr.qp_state, IBV_QPS_RTS);
	while (test_post_send(a->qp, &wr) == 0)
		REQUIRE(++n <= attr.cap.max_send_wr);
	REQUIRE_EQ(test_post_send(a->qp, &wr), ENOMEM);
	REQUIRE_EQ(n, attr.cap.max_send_wr);
	for (unsigned round = 0; round < 5; round++) {
		test_wait(a->cq, IBV_WC_SUCCESS);
		REQUIRE_EQ(test_post_send(a->qp, &wr), 0);
	}
	while (n--)
		test_wait(a->cq, IBV_WC_SUCCESS);
	test_quiet(a->cq);
}

/* An error takes the queue pair to ERR and flushes what was posted; RESET makes it new. */
static void errors(struct side *a, struct side *b)
{
	struct ibv_sge sge = side_sge(a, 0, 8);
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	wr.wr.rdma.remote_addr = (uintptr_t)b->mem;
	wr.wr.rdma.rkey = b->mr->rkey ^ 0x10000;
	REQUIRE_EQ(test_post_recv(a, 3, 0, 8), 0);
	REQUIRE_EQ(test_post_send(a->qp, &wr), 0);
	REQUIRE_EQ(test_wait(a->cq, IBV_WC_REM_ACCESS_ERR).wr_id, 1);
	wr.wr_id = 2;
	REQUIRE_EQ(test_post_send(a->qp, &wr), 0);
	uint64_t ids = test_wait(a->cq, IBV_WC_WR_FLUSH_ERR).wr_id + 10 * test_wait(a->cq, IBV_WC_WR_FLUSH_ERR).wr_id;

	REQUIRE(ids == 23 || ids == 32);
	REQUIRE_EQ(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE), 0);
	REQUIRE_EQ(test_post_send(a->qp, &wr), EINVAL);
	REQUIRE_EQ(ibv_modify_qp(b->qp, &attr, IBV_QP_STATE), 0);
	test_connect(a, b);
	test_message(a, b, 100);
	attr.qp_state = IBV_QPS_RTS;
	REQUIRE_EQ(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY), EINVAL);
}

int main(void)
{
	struct side a, b;
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	sends(&a, &b);
	writes_and_reads(&a, &b);
	atomics(&a, &b);
	refusals(&a, &b);
	full(&a, &b);
	errors(&a, &b);
	REQUIRE_EQ(ibv_destroy_cq(a.cq), EBUSY);
	REQUIRE_EQ(ibv_dealloc_pd(a.pd), EBUSY);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
