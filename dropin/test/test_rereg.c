/* ibv_rereg_mr changes rights, memory and domain under the same keys, or nothing; and thread and parent domains. */
#include "testing.h"

static struct side a, b;

static enum ibv_wc_status write_to(uint64_t addr)
{
	struct ibv_sge sge = side_sge(&a, 0, 32);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;
	uint64_t end = test_now_ns() + 20000000000u;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = b.mr->rkey;
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

static void regions(void)
{
	uint8_t *other = aligned_alloc(4096, 8192);
	struct ibv_pd *pd = ibv_alloc_pd(b.context);
	uint64_t at = (uintptr_t)b.mem;

	REQUIRE(other && pd);
	memset(a.mem, 0x77, 32);
	REQUIRE_EQ(write_to(at), IBV_WC_SUCCESS);
	REQUIRE_EQ(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
	REQUIRE_EQ(write_to(at), IBV_WC_REM_ACCESS_ERR);
	REQUIRE_EQ(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS), 0);
	REQUIRE_EQ(write_to(at), IBV_WC_SUCCESS);

	REQUIRE_EQ(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, 8192, 0), 0);
	REQUIRE(b.mr->addr == other && b.mr->length == 8192);
	memset(other, 0, 8192);
	REQUIRE_EQ(write_to((uintptr_t)other + 100), IBV_WC_SUCCESS);
	REQUIRE_EQ(other[100], 0x77);
	REQUIRE_EQ(write_to(at), IBV_WC_REM_ACCESS_ERR);

	REQUIRE_EQ(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	REQUIRE(b.mr->pd == pd);
	REQUIRE_EQ(ibv_dealloc_pd(pd), EBUSY);
	REQUIRE_EQ(write_to((uintptr_t)other), IBV_WC_REM_ACCESS_ERR);
	REQUIRE_EQ(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, b.pd, b.mem, b.size, 0), 0);
	REQUIRE_EQ(write_to(at), IBV_WC_SUCCESS);
	REQUIRE_EQ(ibv_dealloc_pd(pd), 0);
	free(other);
}

static void refuse(int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	errno = 0;
	REQUIRE_EQ(ibv_rereg_mr(b.mr, flags, pd, addr, length, access), IBV_REREG_MR_ERR_INPUT);
	REQUIRE_EQ(errno, EINVAL);
	REQUIRE_EQ(write_to((uintptr_t)b.mem), IBV_WC_SUCCESS);
}

static void refusals(void)
{
	refuse(0, NULL, NULL, 0, 0);
	refuse(1 << 5, NULL, NULL, 0, 0);
	refuse(IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
	refuse(IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 100, 0);
	refuse(IBV_REREG_MR_CHANGE_TRANSLATION, NULL, a.mem, 0, 0);
	refuse(IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE); /* without the local right */
}

static void domains(struct ibv_context *context)
{
	struct ibv_td_init_attr none = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &none);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	static char memory[64];

	REQUIRE(td && pd && parent);
	REQUIRE_EQ(ibv_dealloc_td(td), EBUSY);
	REQUIRE_EQ(ibv_dealloc_pd(pd), EBUSY);
	struct ibv_mr *mr = ibv_reg_mr(parent, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	REQUIRE(mr && mr->pd == parent);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	attr.pd = parent;
	REQUIRE_ERRNO(ibv_alloc_parent_domain(context, &attr), EINVAL);
	attr.pd = NULL;
	REQUIRE_ERRNO(ibv_alloc_parent_domain(context, &attr), EINVAL);
	REQUIRE_EQ(ibv_dealloc_pd(parent), 0);
	REQUIRE_EQ(ibv_dealloc_td(td), 0);
	REQUIRE_EQ(ibv_dealloc_pd(pd), 0);
	none.comp_mask = 1;
	REQUIRE_ERRNO(ibv_alloc_td(context, &none), EINVAL);
}

int main(void)
{
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	regions();
	refusals();
	domains(context);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
