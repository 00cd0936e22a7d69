/* Device memory: copied to and from, registered, written by a peer; and advice on ordinary memory. */
#include "testing.h"

static struct side a, b;

static enum ibv_wc_status write_to(uint32_t rkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = side_sge(&a, 0, length);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;
	uint64_t end = test_now_ns() + 20000000000u;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	while (ibv_poll_cq(a.cq, 1, &wc) == 0)
		REQUIRE(test_now_ns() < end);
	return wc.status;
}

static void device_memory(struct ibv_context *context)
{
	struct ibv_device_attr_ex limits;
	struct ibv_alloc_dm_attr attr = { .length = 1000, .log_align_req = 3 };
	struct ibv_dm *dm;
	uint8_t text[1000];

	REQUIRE_EQ(ibv_query_device_ex(context, NULL, &limits), 0);
	REQUIRE(limits.max_dm_size >= 4096);
	dm = ibv_alloc_dm(context, &attr);
	REQUIRE(dm != NULL);
	memset(text, 0x11, sizeof(text));
	REQUIRE_EQ(ibv_memcpy_to_dm(dm, 0, text, 1000), 0);
	struct ibv_mr *mr = ibv_reg_dm_mr(b.pd, dm, 100, 600, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	REQUIRE(mr != NULL && mr->length == 600);
	memset(a.mem, 0x22, 200);
	REQUIRE_EQ(write_to(mr->rkey, 400, 200), IBV_WC_SUCCESS);
	REQUIRE_EQ(ibv_memcpy_from_dm(text, dm, 0, 1000), 0);
	for (int i = 0; i < 1000; i++)
		REQUIRE_EQ(text[i], i >= 500 && i < 700 ? 0x22 : 0x11);
	REQUIRE(ibv_memcpy_to_dm(dm, 2, text, 4) != 0);
	REQUIRE(ibv_memcpy_from_dm(text, dm, 0, 3) != 0);
	REQUIRE(ibv_memcpy_to_dm(dm, 998, text, 4) != 0);
	REQUIRE(ibv_memcpy_to_dm(dm, UINT64_MAX - 3, text, 8) != 0);
	REQUIRE_ERRNO(ibv_reg_dm_mr(b.pd, dm, 0, 1001, IBV_ACCESS_ZERO_BASED), EINVAL);
	REQUIRE_ERRNO(ibv_reg_dm_mr(b.pd, dm, 0, 1000, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	REQUIRE_EQ(ibv_free_dm(dm), EBUSY);
	REQUIRE_EQ(write_to(mr->rkey, 401, 200), IBV_WC_REM_ACCESS_ERR);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	REQUIRE_EQ(ibv_free_dm(dm), 0);
	attr.length = limits.max_dm_size + 1;
	REQUIRE(ibv_alloc_dm(context, &attr) == NULL);
	attr.length = 8;
	attr.comp_mask = 1;
	REQUIRE_ERRNO(ibv_alloc_dm(context, &attr), EINVAL);
}

static void advice(void)
{
	struct ibv_mr *mr = ibv_reg_mr(b.pd, b.mem, b.size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_sge sge = { .addr = (uintptr_t)b.mem + 10, .length = 9000 };

	REQUIRE(mr != NULL);
	sge.lkey = mr->lkey;
	REQUIRE_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
	REQUIRE_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
	REQUIRE_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), 0);
	REQUIRE_EQ(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 8, &sge, 1), EINVAL);
	REQUIRE_EQ(ibv_advise_mr(b.pd, (enum ibv_advise_mr_advice)77, 0, &sge, 1), EOPNOTSUPP);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
}

/* What is not offered says so, each in its shape. */
static void refusals(struct ibv_context *context)
{
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_flow_attr flow = { 0 };
	struct ibv_wq_init_attr wq = { 0 };
	struct ibv_ece ece = { .vendor_id = 1, .options = 2 };

	REQUIRE_ERRNO(ibv_alloc_null_mr(b.pd), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_create_counters(context, &counters), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_create_flow(b.qp, &flow), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_create_wq(context, &wq), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_reg_dmabuf_mr(b.pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_import_device(context->cmd_fd), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_import_pd(context, 1), EOPNOTSUPP);
	REQUIRE_ERRNO(ibv_import_mr(b.pd, 1), EOPNOTSUPP);
	REQUIRE_EQ(ibv_set_ece(b.qp, &ece), 0);
	REQUIRE_EQ(ibv_query_ece(b.qp, &ece), 0);
	REQUIRE_EQ(ece.vendor_id, 0);
}

int main(void)
{
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	device_memory(context);
	advice();
	refusals(context);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
