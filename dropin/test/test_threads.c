/* Several threads use one queue pair and one completion queue, while another makes and destroys queue pairs of that
 * completion queue. No completion is lost or doubled. */
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { POSTERS = 3, POLLERS = 2, EACH = 1000, TOTAL = POSTERS * EACH };

static struct side a, b;
static atomic_int started, completed;
static atomic_uchar seen[TOTAL];
static atomic_bool done;

static void *post(void *first)
{
	for (size_t i = 0; i < EACH; i++) {
		struct ibv_sge sge = side_sge(&a, 0, 8);
		struct ibv_send_wr wr = {
			.wr_id = (uintptr_t)first + i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
		};
		int error;

		wr.wr.rdma.remote_addr = (uintptr_t)b.mem;
		wr.wr.rdma.rkey = b.mr->rkey;
		/* Where slots come back when requests complete, nothing else keeps the completion queue from overrunning. */
		while (atomic_load(&started) - atomic_load(&completed) >= SIDE_DEPTH / 2)
			sched_yield();
		atomic_fetch_add(&started, 1);
		while ((error = test_post_send(a.qp, &wr)) == ENOMEM)
			sched_yield();
		REQUIRE_EQ(error, 0);
	}
	return NULL;
}

static void *poll_all(void *unused)
{
	(void)unused;
	while (atomic_load(&completed) < TOTAL) {
		struct ibv_wc wc[7];
		int n = ibv_poll_cq(a.cq, 7, wc);

		REQUIRE(n >= 0);
		for (int i = 0; i < n; i++) {
			if (wc[i].status == IBV_WC_WR_FLUSH_ERR && wc[i].wr_id == TOTAL)
				continue; /* the other thread's, before it was reset */
			REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
			REQUIRE(wc[i].wr_id < TOTAL);
			REQUIRE_EQ(atomic_exchange(&seen[wc[i].wr_id], 1), 0);
			atomic_fetch_add(&completed, 1);
		}
	}
	return NULL;
}

/* Queue pairs that flush what is posted to them come and go. */
static void *churn(void *unused)
{
	(void)unused;
	while (!atomic_load(&done)) {
		struct ibv_qp_init_attr_ex init = side_init_attr(&a, IBV_QPT_RC);
		struct ibv_qp *qp = ibv_create_qp_ex(a.context, &init);
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		struct ibv_sge sge = side_sge(&a, 64, 64);
		struct ibv_recv_wr wr = { .wr_id = TOTAL, .sg_list = &sge, .num_sge = 1 }, *bad;

		REQUIRE(qp != NULL);
		REQUIRE_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
		REQUIRE_EQ(ibv_post_recv(qp, &wr, &bad), 0);
		attr.qp_state = IBV_QPS_ERR;
		REQUIRE_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
		attr.qp_state = IBV_QPS_RESET;
		REQUIRE_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
		REQUIRE_EQ(ibv_destroy_qp(qp), 0);
	}
	return NULL;
}

int main(void)
{
	struct ibv_context *context = test_open();
	pthread_t threads[POSTERS + POLLERS + 1];
	size_t n = 0;

	side_open(&a, context);
	side_qp(&a, IBV_QPT_RC);
	side_open(&b, context);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	for (size_t i = 0; i < POSTERS; i++)
		REQUIRE_EQ(pthread_create(&threads[n++], NULL, post, (void *)(uintptr_t)(i * EACH)), 0);
	for (size_t i = 0; i < POLLERS; i++)
		REQUIRE_EQ(pthread_create(&threads[n++], NULL, poll_all, NULL), 0);
	REQUIRE_EQ(pthread_create(&threads[n], NULL, churn, NULL), 0);
	for (size_t i = 0; i < n; i++)
		REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	atomic_store(&done, true);
	REQUIRE_EQ(pthread_join(threads[n], NULL), 0);
	REQUIRE_EQ(atomic_load(&completed), TOTAL);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
