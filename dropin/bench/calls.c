/* What a call costs: post_send, post_recv, and poll_cq with and without a completion. One process, queue pairs of one
 * device, which is awake when requests are posted. Each figure is the median of batches, so that a processor which was
 * taken away for a while does not show. */
#include "../test/testing.h"

#include <unistd.h>

enum { BATCH = 32, BATCHES = 400 };

static struct side a, b, c, d;

/* What a call took in each batch that counts, in ns. */
struct figures {
	double ns[BATCHES];
	size_t n;
};

static void add(struct figures *f, uint64_t begin) { f->ns[f->n++] = (double)(test_now_ns() - begin) / BATCH; }

static int by_size(const void *x, const void *y)
{
	double d = *(const double *)x - *(const double *)y;

	return (d > 0) - (d < 0);
}

static void print(const char *what, struct figures *f)
{
	REQUIRE(f->n > 0);
	qsort(f->ns, f->n, sizeof(f->ns[0]), by_size);
	printf("%-32s %8.1f ns, of %zu batches\n", what, f->ns[f->n / 2], f->n);
}

/* A message between the other ends, so that the device is awake for a moment. */
static void wake(void) { test_message(&c, &d, 8); }

/* The device has time to write the completions. Batches whose completions were late all the same do not count. */
static void settle(void) { usleep(300); }

/* Takes the rest of a batch. */
static void drain(struct ibv_cq *cq, int got)
{
	while (got < BATCH) {
		struct ibv_wc wc[BATCH];
		int n = ibv_poll_cq(cq, BATCH, wc);

		REQUIRE(n >= 0);
		got += n;
	}
}

int main(void)
{
	static struct figures post, list, recv, full, many, empty;
	struct ibv_context *context = test_open();
	struct ibv_wc wc[BATCH];

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	side_open(&c, context);
	side_open(&d, context);
	side_qp(&c, IBV_QPT_RC);
	side_qp(&d, IBV_QPT_RC);
	test_connect(&c, &d);

	struct ibv_sge to = side_sge(&b, 0, 8), from = side_sge(&a, 0, 8);
	struct ibv_send_wr wr[BATCH], *bad_send;
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_recv;

	for (int i = 0; i < BATCH; i++)
		wr[i] = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &from, .num_sge = 1 };
	for (int n = 0; n < BATCHES; n++) {
		uint64_t begin = test_now_ns();

		for (int i = 0; i < BATCH; i++)
			REQUIRE_EQ(ibv_post_recv(b.qp, &receive, &bad_recv), 0);
		add(&recv, begin);

		for (int i = 0; i < BATCH - 1; i++)
			wr[i].next = n % 2 ? &wr[i + 1] : NULL;
		wake();
		begin = test_now_ns();
		if (n % 2)
			REQUIRE_EQ(ibv_post_send(a.qp, wr, &bad_send), 0);
		else
			for (int i = 0; i < BATCH; i++)
				REQUIRE_EQ(ibv_post_send(a.qp, &wr[i], &bad_send), 0);
		add(n % 2 ? &list : &post, begin);

		settle();
		begin = test_now_ns();
		int got = 0;

		for (int i = 0; i < BATCH; i++)
			got += ibv_poll_cq(a.cq, 1, wc);
		if (got == BATCH)
			add(&full, begin);
		drain(a.cq, got);
		begin = test_now_ns();
		got = ibv_poll_cq(b.cq, BATCH, wc);
		if (got == BATCH)
			add(&many, begin);
		drain(b.cq, got);
		begin = test_now_ns();
		for (int i = 0; i < BATCH; i++)
			REQUIRE_EQ(ibv_poll_cq(a.cq, 1, wc), 0);
		add(&empty, begin);
	}
	print("post_send", &post);
	print("post_send, a request of 32", &list);
	print("post_recv", &recv);
	print("poll_cq, a completion", &full);
	print("poll_cq, a completion of 32", &many);
	print("poll_cq, none (yields)", &empty);
	side_close(&a);
	side_close(&b);
	side_close(&c);
	side_close(&d);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
