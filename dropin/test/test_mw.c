/* Memory windows: type 1 by ibv_bind_mw, type 2 by a request or a builder, invalidated from here and from there. */
#include "testing.h"

static struct side a, b; /* b has the windows, a works through them */

static enum ibv_wc_status write_at(uint32_t rkey, uint64_t addr)
{
	struct ibv_sge sge = side_sge(&a, 0, 16);
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;
	uint64_t end = test_now_ns() + 20000000000u;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	while (ibv_poll_cq(a.cq, 1, &wc) == 0)
		REQUIRE(test_now_ns() < end);
	if (wc.status != IBV_WC_SUCCESS) {
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

		REQUIRE_EQ(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
		REQUIRE_EQ(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE), 0);
		test_connect(&a, &b);
	}
	return wc.status;
}

static struct ibv_mw_bind_info part(size_t offset, uint64_t length)
{
	return (struct ibv_mw_bind_info){ .mr = b.mr, .addr = (uintptr_t)b.mem + offset, .length = length, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
}

static void type1(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .wr_id = 4, .send_flags = IBV_SEND_SIGNALED, .bind_info = part(256, 64) };
	uint64_t at = (uintptr_t)b.mem + 256;
	uint32_t before, key;

	REQUIRE(mw && mw->pd == b.pd && mw->type == IBV_MW_TYPE_1);
	before = mw->rkey;
	REQUIRE_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
	struct ibv_wc wc = test_wait(b.cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.wr_id, 4);
	REQUIRE_EQ(wc.opcode, IBV_WC_BIND_MW);
	REQUIRE_EQ(mw->rkey, ibv_inc_rkey(before));
	key = mw->rkey;
	REQUIRE_EQ(write_at(key, at), IBV_WC_SUCCESS);
	REQUIRE_EQ(write_at(key, at + 48), IBV_WC_SUCCESS);
	REQUIRE_EQ(ibv_dereg_mr(b.mr), EBUSY);
	REQUIRE_EQ(write_at(key, at + 49), IBV_WC_REM_ACCESS_ERR);
	bind.bind_info.length = 0;
	REQUIRE_EQ(ibv_bind_mw(b.qp, mw, &bind), 0);
	test_wait(b.cq, IBV_WC_SUCCESS);
	REQUIRE_EQ(write_at(key, at), IBV_WC_REM_ACCESS_ERR);
	REQUIRE_EQ(ibv_dealloc_mw(mw), 0);
}

static uint32_t bind2(struct ibv_mw *mw, bool built)
{
	uint32_t key = ibv_inc_rkey(mw->rkey);

	if (built) {
		struct ibv_qp_ex *q = ibv_qp_to_qp_ex(b.qp);
		struct ibv_mw_bind_info info = part(512, 128);

		ibv_wr_start(q);
		q->wr_id = 5;
		q->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(q, mw, key, &info);
		REQUIRE_EQ(ibv_wr_complete(q), 0);
	} else {
		struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = key;
		wr.bind_mw.bind_info = part(512, 128);
		REQUIRE_EQ(test_post_send(b.qp, &wr), 0);
	}
	REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
	/* The window's own field is the program's to keep for type 2; its key is the one that was asked for. */
	mw->rkey = key;
	return key;
}

static void invalidate(uint32_t key, bool built)
{
	if (built) {
		struct ibv_qp_ex *q = ibv_qp_to_qp_ex(b.qp);

		ibv_wr_start(q);
		q->wr_id = 6;
		q->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_local_inv(q, key);
		REQUIRE_EQ(ibv_wr_complete(q), 0);
	} else {
		struct ibv_send_wr wr = { .wr_id = 6, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = key };

		REQUIRE_EQ(test_post_send(b.qp, &wr), 0);
	}
	REQUIRE_EQ(test_wait(b.cq, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
}

static void invalidate_from_peer(uint32_t key, bool built)
{
	struct ibv_sge sge = side_sge(&a, 0, 4);

	REQUIRE_EQ(test_post_recv(&b, 9, 0, 64), 0);
	if (built) {
		struct ibv_qp_ex *q = ibv_qp_to_qp_ex(a.qp);

		ibv_wr_start(q);
		q->wr_id = 8;
		q->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_inv(q, key);
		ibv_wr_set_sge(q, sge.lkey, sge.addr, sge.length);
		REQUIRE_EQ(ibv_wr_complete(q), 0);
	} else {
		struct ibv_send_wr wr = { .wr_id = 8, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED,
					  .sg_list = &sge, .num_sge = 1, .invalidate_rkey = key };

		REQUIRE_EQ(test_post_send(a.qp, &wr), 0);
	}
	test_wait(a.cq, IBV_WC_SUCCESS);
	struct ibv_wc wc = test_wait(b.cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	REQUIRE_EQ(wc.invalidated_rkey, key);
}

static void type2(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .bind_info = part(0, 8) };
	uint64_t at = (uintptr_t)b.mem + 512;

	REQUIRE(mw != NULL);
	REQUIRE_EQ(ibv_bind_mw(b.qp, mw, &bind), EINVAL); /* that is for type 1 */
	for (int built = 0; built < 2; built++) {
		uint32_t key = bind2(mw, built);

		REQUIRE_EQ(write_at(key, at), IBV_WC_SUCCESS);
		invalidate(key, built);
		REQUIRE_EQ(write_at(key, at), IBV_WC_REM_ACCESS_ERR);
		key = bind2(mw, built);
		REQUIRE_EQ(write_at(key, at + 112), IBV_WC_SUCCESS);
		invalidate_from_peer(key, built);
		REQUIRE_EQ(write_at(key, at), IBV_WC_REM_ACCESS_ERR);
	}
	bind2(mw, false);
	REQUIRE_EQ(ibv_dealloc_mw(mw), 0);
	REQUIRE_ERRNO(ibv_alloc_mw(b.pd, (enum ibv_mw_type)7), EINVAL);
}

int main(void)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp_ex(&a, IBV_QPT_RC, ops);
	side_qp_ex(&b, IBV_QPT_RC, ops);
	test_connect(&a, &b);
	type1();
	type2();
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
