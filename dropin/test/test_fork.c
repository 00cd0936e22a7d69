/* A process forks in the middle of its work. The parent goes on as if nothing had been; the child cannot use what the
 * parent had opened, nor hurt it, and opens a device of its own. */
#include "testing.h"

#include <sys/wait.h>
#include <unistd.h>

/* In the child. */
static void inherited(struct side *a)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_sge sge = side_sge(a, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct ibv_port_attr port;
	struct ibv_wc wc;

	memset(a->mem, 0xcc, a->size);
	REQUIRE(test_post_send(a->qp, &wr) != 0);
	REQUIRE(ibv_poll_cq(a->cq, 1, &wc) <= 0);
	REQUIRE(ibv_query_port(a->context, 1, &port) != 0);
	REQUIRE(ibv_alloc_pd(a->context) == NULL);
	REQUIRE(ibv_create_cq(a->context, 10, NULL, NULL, 0) == NULL);
	REQUIRE(ibv_create_srq(a->pd, &(struct ibv_srq_init_attr){ .attr = { .max_wr = 10, .max_sge = 1 } }) == NULL);
	REQUIRE(ibv_alloc_dm(a->context, &(struct ibv_alloc_dm_attr){ .length = 8 }) == NULL);
	REQUIRE(ibv_resize_cq(a->cq, 1000) != 0);
	REQUIRE(ibv_resize_cq(a->cq, 4 * SIDE_DEPTH) != 0);
	REQUIRE_EQ(ibv_modify_qp(a->qp, &reset, IBV_QP_STATE), EIO);
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(a->qp);

	ibv_wr_start(q);
	ibv_wr_send(q);
	ibv_wr_set_sge(q, sge.lkey, sge.addr, sge.length);
	REQUIRE_EQ(ibv_wr_complete(q), EIO);
	REQUIRE(ibv_reg_mr(a->pd, a->mem, 10, 0) == NULL);
	REQUIRE(ibv_start_poll((struct ibv_cq_ex *)a->cq, &(struct ibv_poll_cq_attr){ 0 }) == EIO);
}

/* Locks the completion queue and the send queue of a side, as another thread of the parent may have them at the fork. */
static void hold(struct side *a, struct side *b)
{
	struct ibv_sge sge = side_sge(b, 0, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	int error;

	REQUIRE_EQ(test_post_recv(a, 1, 0, 8), 0);
	REQUIRE_EQ(test_post_send(b->qp, &wr), 0);
	test_wait(b->cq, IBV_WC_SUCCESS);
	do
		error = ibv_start_poll((struct ibv_cq_ex *)a->cq, &(struct ibv_poll_cq_attr){ 0 });
	while (error == ENOENT);
	REQUIRE_EQ(error, 0);
	ibv_wr_start(ibv_qp_to_qp_ex(a->qp));
}

static void let_go(struct side *a)
{
	ibv_wr_abort(ibv_qp_to_qp_ex(a->qp));
	ibv_end_poll((struct ibv_cq_ex *)a->cq);
}

static void child(struct side *a, bool clean)
{
	struct ibv_context *context;
	struct side c, d;

	alarm(60); /* a lock that nobody gives back */
	inherited(a);
	context = test_open();
	side_open(&c, context);
	side_open(&d, context);
	side_qp(&c, IBV_QPT_RC);
	side_qp(&d, IBV_QPT_RC);
	test_connect(&c, &d);
	for (int i = 0; i < 20; i++)
		test_message(&c, &d, 1000);
	side_close(&c);
	side_close(&d);
	REQUIRE_EQ(ibv_close_device(context), 0);
	if (clean) {
		/* Some programs clean up what they have inherited. */
		ibv_destroy_qp(a->qp);
		ibv_destroy_cq(a->cq);
		ibv_dereg_mr(a->mr);
		ibv_dealloc_pd(a->pd);
		ibv_close_device(a->context);
	}
	_exit(0);
}

int main(void)
{
	struct ibv_context *context;
	struct side a, b;

	REQUIRE_EQ(ibv_fork_init(), 0);
	REQUIRE(ibv_is_fork_initialized() != IBV_FORK_DISABLED);
	context = test_open();
	side_open(&a, context);
	side_open(&b, context);
	REQUIRE_EQ(ibv_destroy_cq(a.cq), 0);
	struct ibv_cq_init_attr_ex attr = { .cqe = 4 * SIDE_DEPTH };

	a.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &attr));
	REQUIRE(a.cq != NULL);
	side_qp_ex(&a, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	for (int round = 0; round < 6; round++) {
		int status;
		pid_t pid;

		hold(&a, &b);
		pid = fork();
		REQUIRE(pid >= 0);
		if (pid == 0)
			child(&a, round % 2);
		let_go(&a);
		for (int i = 0; i < 50; i++)
			test_message(i % 2 ? &a : &b, i % 2 ? &b : &a, 3000);
		REQUIRE_EQ(waitpid(pid, &status, 0), pid);
		REQUIRE(WIFEXITED(status));
		REQUIRE_EQ(WEXITSTATUS(status), 0);
		test_message(&a, &b, 100);
	}
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
