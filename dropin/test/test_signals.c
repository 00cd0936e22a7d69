/* A timer signals the process a thousand times a second, with a handler that does not restart system calls, while it
 * posts, polls, waits for events and makes and destroys objects. */
#include "testing.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
	(void)number;
	signals++;
}

static void get_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *cq_context;

	/* It returns -1 with EINTR, as every blocking read; programs ask again. */
	while (ibv_get_cq_event(channel, &cq, &cq_context))
		REQUIRE_EQ(errno, EINTR);
	ibv_ack_cq_events(cq, 1);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval often = { .it_interval = { .tv_usec = 1000 }, .it_value = { .tv_usec = 1000 } }, never = { 0 };
	struct ibv_context *context = test_open();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct side a, b;
	uint64_t end;
	int rounds = 0;

	side_open(&a, context);
	side_open(&b, context);
	REQUIRE_EQ(ibv_destroy_cq(b.cq), 0);
	b.cq = ibv_create_cq(context, 100, NULL, channel, 0);
	REQUIRE(b.cq != NULL);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	REQUIRE_EQ(sigaction(SIGALRM, &action, NULL), 0);
	REQUIRE_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
	end = test_now_ns() + 2000000000u;
	while (test_now_ns() < end || signals < 500) {
		REQUIRE_EQ(ibv_req_notify_cq(b.cq, 0), 0);
		test_message(&a, &b, 2000);
		get_event(channel);
		if (rounds++ % 10 == 0) {
			struct ibv_mr *mr = ibv_reg_mr(a.pd, a.mem, 4096, IBV_ACCESS_LOCAL_WRITE);
			struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
			struct ibv_port_attr port;
			struct side c;

			REQUIRE(mr && cq);
			REQUIRE_EQ(ibv_resize_cq(cq, 200), 0);
			REQUIRE_EQ(ibv_destroy_cq(cq), 0);
			REQUIRE_EQ(ibv_dereg_mr(mr), 0);
			REQUIRE_EQ(ibv_query_port(context, 1, &port), 0);
			side_open(&c, context);
			side_qp(&c, IBV_QPT_UD);
			test_ready(c.qp, 0);
			side_close(&c);
		}
	}
	REQUIRE_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
	printf("%d rounds, %d signals\n", rounds, (int)signals);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_destroy_comp_channel(channel), 0);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
