#include "testing.h"

enum { PATIENCE_SECONDS = 20 };

_Noreturn void test_fail(const char *file, int line, const char *what, const char *detail)
{
	fprintf(stderr, "%s:%d: not so: %s%s\n", file, line, what, detail);
	fflush(stderr);
	_Exit(1);
}

uint64_t test_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct ibv_context *test_open(void)
{
	const char *name = getenv("TEST_DEVICE");
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_device *device = NULL;

	REQUIRE(list != NULL);
	REQUIRE(n > 0);
	for (int i = 0; list[i]; i++)
		if (!device && (!name || strcmp(ibv_get_device_name(list[i]), name) == 0))
			device = list[i];
	REQUIRE(device != NULL);
	struct ibv_context *context = ibv_open_device(device);

	REQUIRE(context != NULL);
	ibv_free_device_list(list);
	return context;
}

int test_gid_index(struct ibv_context *context)
{
	struct ibv_gid_entry entry;

	for (uint32_t i = 0; i < 16; i++)
		if (ibv_query_gid_ex(context, 1, i, &entry, 0) == 0)
			return (int)i;
	test_fail(__FILE__, __LINE__, "the GID table has an entry", "");
}

struct ibv_ah_attr test_address(struct ibv_context *context)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	int index = test_gid_index(context);

	attr.grh.sgid_index = (uint8_t)index;
	attr.grh.hop_limit = 64;
	REQUIRE_EQ(ibv_query_gid(context, 1, index, &attr.grh.dgid), 0);
	return attr;
}

void side_open(struct side *s, struct ibv_context *context)
{
	memset(s, 0, sizeof(*s));
	s->context = context;
	s->size = SIDE_MEMORY;
	s->mem = aligned_alloc(4096, s->size);
	REQUIRE(s->mem != NULL);
	memset(s->mem, 0, s->size);
	s->pd = ibv_alloc_pd(context);
	REQUIRE(s->pd != NULL);
	s->mr = ibv_reg_mr(s->pd, s->mem, s->size, ALL_ACCESS);
	REQUIRE(s->mr != NULL);
	s->cq = ibv_create_cq(context, 4 * SIDE_DEPTH, s, NULL, 0);
	REQUIRE(s->cq != NULL);
}

struct ibv_qp_init_attr_ex side_init_attr(struct side *s, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = s, .send_cq = s->cq, .recv_cq = s->cq, .srq = s->srq, .qp_type = type,
		.cap = { .max_send_wr = SIDE_DEPTH, .max_recv_wr = SIDE_DEPTH, .max_send_sge = SIDE_SGE,
			 .max_recv_sge = SIDE_SGE, .max_inline_data = SIDE_INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = s->pd,
	};

	if (type == IBV_QPT_XRC_SEND) {
		attr.recv_cq = NULL;
		attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
	}
	return attr;
}

void side_qp(struct side *s, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = side_init_attr(s, type);

	s->qp = ibv_create_qp_ex(s->context, &attr);
	REQUIRE(s->qp != NULL);
	REQUIRE(s->qp->qp_context == s);
	REQUIRE_EQ(s->qp->state, IBV_QPS_RESET);
	REQUIRE(attr.cap.max_send_wr >= SIDE_DEPTH);
	REQUIRE(attr.cap.max_inline_data >= SIDE_INLINE);
}

void side_qp_ex(struct side *s, enum ibv_qp_type type, uint64_t send_ops)
{
	struct ibv_qp_init_attr_ex attr = side_init_attr(s, type);

	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = send_ops;
	s->qp = ibv_create_qp_ex(s->context, &attr);
	REQUIRE(s->qp != NULL);
}

void side_close(struct side *s)
{
	if (s->qp)
		REQUIRE_EQ(ibv_destroy_qp(s->qp), 0);
	if (s->srq)
		REQUIRE_EQ(ibv_destroy_srq(s->srq), 0);
	REQUIRE_EQ(ibv_destroy_cq(s->cq), 0);
	REQUIRE_EQ(ibv_dereg_mr(s->mr), 0);
	REQUIRE_EQ(ibv_dealloc_pd(s->pd), 0);
	free(s->mem);
	memset(s, 0, sizeof(*s));
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	REQUIRE_EQ(ibv_modify_qp(qp, attr, IBV_QP_STATE | mask), 0);
	REQUIRE_EQ(qp->state, state);
}

void test_ready(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.port_num = 1, .qkey = QKEY, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 0x123, .sq_psn = 0x123,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7, .ah_attr = test_address(qp->context),
	};
	bool asks = qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND;
	bool answers = qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV;
	bool datagram = qp->qp_type == IBV_QPT_UD;

	modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	modify(qp, &attr, IBV_QPS_RTR,
	       (datagram ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
		       (answers ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	modify(qp, &attr, IBV_QPS_RTS,
	       IBV_QP_SQ_PSN | (asks || answers ? IBV_QP_TIMEOUT : 0) |
		       (asks ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

void test_connect(struct side *a, struct side *b)
{
	test_ready(a->qp, b->qp->qp_num);
	test_ready(b->qp, a->qp->qp_num);
}

static uint8_t filling(size_t i, unsigned seed) { return (uint8_t)(i * 31 + (i >> 8) * 7 + seed); }

void test_fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = filling(i, seed);
}

void test_filled(const uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		REQUIRE_EQ(p[i], filling(i, seed));
}

struct ibv_wc test_wait(struct ibv_cq *cq, enum ibv_wc_status want)
{
	uint64_t end = test_now_ns() + PATIENCE_SECONDS * 1000000000ull;
	struct ibv_wc wc;
	int n;

	memset(&wc, 0xa5, sizeof(wc));
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (test_now_ns() > end)
			test_fail(__FILE__, __LINE__, "a completion comes", "");
	REQUIRE_EQ(n, 1);
	REQUIRE_EQ(wc.status, want);
	return wc;
}

void test_quiet(struct ibv_cq *cq)
{
	struct timespec moment = { .tv_nsec = 20000000 };
	struct ibv_wc wc;

	nanosleep(&moment, NULL);
	REQUIRE_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

int test_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(qp, wr, &bad);

	REQUIRE((error != 0) == (bad != NULL));
	return error;
}

int test_post_recv(struct side *s, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = side_sge(s, offset, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int error = s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);

	REQUIRE((error != 0) == (bad != NULL));
	return error;
}

struct ibv_sge side_sge(struct side *s, size_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)s->mem + offset, .length = length, .lkey = s->mr->lkey };
}

void test_message(struct side *a, struct side *b, uint32_t length)
{
	static uint8_t next;
	struct ibv_sge sge = side_sge(a, 0, length);
	struct ibv_send_wr wr = {
		.wr_id = 7, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1
	};
	size_t half = b->size / 2;

	memset(a->mem, ++next, length);
	memset(b->mem + half, 0, length);
	REQUIRE_EQ(test_post_recv(b, 8, half, length), 0);
	REQUIRE_EQ(test_post_send(a->qp, &wr), 0);
	REQUIRE_EQ(test_wait(a->cq, IBV_WC_SUCCESS).wr_id, 7);
	struct ibv_wc wc = test_wait(b->cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.wr_id, 8);
	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.byte_len, length);
	REQUIRE(memcmp(a->mem, b->mem + half, length) == 0);
}
