/* The builders of ibv_qp_ex do what ibv_post_send does: each operation is posted by the one and by the other, and memory
 * and completions are the same. */
#include "testing.h"

#include <arpa/inet.h>

#define ALL_OPS                                                                                                        \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |                        \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                 \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |                     \
	 IBV_QP_EX_WITH_SEND_WITH_INV)

static struct side a, b;

/* Prepares both memories, so that two runs of an operation can be compared. */
static void prepare(void)
{
	for (size_t i = 0; i < a.size; i++) {
		a.mem[i] = (uint8_t)(i * 3);
		b.mem[i] = (uint8_t)(i * 5);
	}
}

static void post(struct ibv_send_wr *wr)
{
	REQUIRE_EQ(test_post_send(a.qp, wr), 0);
}

static void build(struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(a.qp);

	ibv_wr_start(q);
	q->wr_id = wr->wr_id;
	q->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(q);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(q, wr->imm_data);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(q, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add,
				      wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(q, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	default:
		REQUIRE(false);
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		struct ibv_data_buf data[2] = { { (void *)(uintptr_t)wr->sg_list[0].addr, wr->sg_list[0].length },
						{ wr->num_sge > 1 ? (void *)(uintptr_t)wr->sg_list[1].addr : NULL,
						  wr->num_sge > 1 ? wr->sg_list[1].length : 0 } };

		if (wr->num_sge == 1)
			ibv_wr_set_inline_data(q, data[0].addr, data[0].length);
		else
			ibv_wr_set_inline_data_list(q, 2, data);
	} else if (wr->num_sge == 1) {
		ibv_wr_set_sge(q, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	} else {
		ibv_wr_set_sge_list(q, (size_t)wr->num_sge, wr->sg_list);
	}
	REQUIRE_EQ(ibv_wr_complete(q), 0);
}

/* Runs an operation and returns its completions, without what differs between two runs. */
static void run(void (*how)(struct ibv_send_wr *), struct ibv_send_wr *wr, bool receives, struct ibv_wc got[2])
{
	memset(got, 0, 2 * sizeof(*got));
	prepare();
	if (receives)
		REQUIRE_EQ(test_post_recv(&b, 17, 30000, 10000), 0);
	how(wr);
	got[0] = test_wait(a.cq, IBV_WC_SUCCESS);
	if (receives)
		got[1] = test_wait(b.cq, IBV_WC_SUCCESS);
}

static void same(struct ibv_send_wr *wr, bool receives)
{
	static uint8_t mem[2][SIDE_MEMORY];
	struct ibv_wc plain[2], built[2];

	wr->wr_id = 40 + (uint64_t)wr->opcode;
	wr->send_flags |= IBV_SEND_SIGNALED;
	run(post, wr, receives, plain);
	memcpy(mem[0], a.mem, SIDE_MEMORY);
	memcpy(mem[1], b.mem, SIDE_MEMORY);
	run(build, wr, receives, built);
	REQUIRE(memcmp(mem[0], a.mem, SIDE_MEMORY) == 0);
	REQUIRE(memcmp(mem[1], b.mem, SIDE_MEMORY) == 0);
	for (int i = 0; i <= receives; i++) {
		REQUIRE_EQ(built[i].wr_id, plain[i].wr_id);
		REQUIRE_EQ(built[i].opcode, plain[i].opcode);
		if (i == 1) {
			REQUIRE_EQ(built[i].byte_len, plain[i].byte_len);
			REQUIRE_EQ(built[i].wc_flags, plain[i].wc_flags);
			if (built[i].wc_flags & IBV_WC_WITH_IMM)
				REQUIRE_EQ(built[i].imm_data, plain[i].imm_data);
		}
	}
}

static void operations(void)
{
	static const enum ibv_wr_opcode rdma[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM };
	struct ibv_sge list[3] = { side_sge(&a, 0, 3000), side_sge(&a, 5000, 17), side_sge(&a, 9000, 2000) };
	struct ibv_send_wr wr = { .sg_list = list };

	for (int sges = 1; sges <= 3; sges++) {
		wr.num_sge = sges;
		for (int i = 0; i < 3; i++) {
			wr.opcode = rdma[i];
			wr.wr.rdma.rkey = b.mr->rkey;
			wr.wr.rdma.remote_addr = (uintptr_t)b.mem + 77;
			wr.imm_data = htonl(0xdeadbeef);
			same(&wr, i == 2);
		}
		wr.opcode = IBV_WR_SEND;
		same(&wr, true);
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		same(&wr, true);
	}
	wr.num_sge = 1;
	list[0] = side_sge(&a, 64, 8);
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.remote_addr = (uintptr_t)b.mem + 128;
	wr.wr.atomic.swap = 0x1122334455667788;
	for (int hit = 0; hit < 2; hit++) {
		prepare();
		wr.wr.atomic.compare_add = 5;
		if (hit)
			memcpy(&wr.wr.atomic.compare_add, b.mem + 128, 8);
		wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		same(&wr, false);
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		same(&wr, false);
	}
	wr.send_flags = IBV_SEND_INLINE;
	list[0].length = 19;
	list[1].length = 13;
	for (wr.num_sge = 1; wr.num_sge <= 2; wr.num_sge++) {
		wr.opcode = IBV_WR_SEND;
		same(&wr, true);
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.rkey = b.mr->rkey;
		wr.wr.rdma.remote_addr = (uintptr_t)b.mem + 3;
		same(&wr, false);
	}
}

/* A batch is published by its end, in order, and only then. */
static void batches(void)
{
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(a.qp);

	ibv_wr_start(q);
	for (int i = 0; i < 10; i++) {
		q->wr_id = (uint64_t)i;
		q->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
		ibv_wr_set_sge(q, a.mr->lkey, (uintptr_t)a.mem, 100);
	}
	test_quiet(a.cq);
	REQUIRE_EQ(ibv_wr_complete(q), 0);
	for (int i = 0; i < 10; i++)
		REQUIRE_EQ(test_wait(a.cq, IBV_WC_SUCCESS).wr_id, i);

	ibv_wr_start(q);
	q->wr_id = 99;
	ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
	ibv_wr_set_sge(q, a.mr->lkey, (uintptr_t)a.mem, 100);
	ibv_wr_abort(q);
	test_quiet(a.cq);

	ibv_wr_start(q);
	REQUIRE_EQ(ibv_wr_complete(q), 0);
	test_quiet(a.cq);
}

/* What is wrong with one request is said by the end of the batch, which posts nothing then. */
static void failures(void)
{
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(a.qp);
	struct ibv_sge list[SIDE_SGE + 1];
	static uint8_t large[8192];

	for (int i = 0; i <= SIDE_SGE; i++)
		list[i] = side_sge(&a, 0, 1);
	for (int kind = 0; kind < 4; kind++) {
		ibv_wr_start(q);
		q->wr_id = 1;
		q->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
		ibv_wr_set_sge(q, a.mr->lkey, (uintptr_t)a.mem, 100);
		switch (kind) {
		case 0:
			ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
			ibv_wr_set_sge_list(q, SIDE_SGE + 1, list);
			REQUIRE_EQ(ibv_wr_complete(q), EINVAL);
			break;
		case 1:
			ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
			ibv_wr_set_inline_data(q, large, sizeof(large));
			REQUIRE_EQ(ibv_wr_complete(q), EINVAL);
			break;
		case 2:
			for (int i = 0; i < 2 * SIDE_DEPTH; i++) {
				ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
				ibv_wr_set_sge(q, a.mr->lkey, (uintptr_t)a.mem, 100);
			}
			REQUIRE_EQ(ibv_wr_complete(q), ENOMEM);
			break;
		case 3:
			ibv_wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.mem);
			ibv_wr_set_inline_data_list(q, 2, (struct ibv_data_buf[]){ { large, SIZE_MAX - 1 }, { large, 4 } });
			REQUIRE_EQ(ibv_wr_complete(q), EINVAL);
			break;
		}
		test_quiet(a.cq);
	}
	test_message(&a, &b, 10);
}

/* What a later release of the header has at the end of struct ibv_qp_ex, and its names. */
struct later {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type, uint8_t level);
};

enum { WITH_FLUSH = 1 << 11, FLUSH_GLOBAL = 1, FLUSH_RANGE = 0, FLUSH_REGION = 1, ACCESS_FLUSH_GLOBAL = 1 << 8, WC_FLUSH = 8 };

/* ATOMIC WRITE and FLUSH have builders alone. */
static void newer(struct ibv_context *context)
{
	struct side c, d;
	uint64_t value = 0x1122334455667788, got;
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL };

	side_open(&c, context);
	side_open(&d, context);
	side_qp_ex(&c, IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE | WITH_FLUSH);
	side_qp(&d, IBV_QPT_RC);
	test_connect(&c, &d);
	REQUIRE_EQ(ibv_modify_qp(d.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
	struct ibv_mr *mr = ibv_reg_mr(d.pd, d.mem, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL);
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(c.qp);

	REQUIRE(mr && q);
	ibv_wr_start(q);
	q->wr_id = 1;
	q->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(q, mr->rkey, (uintptr_t)d.mem + 64, &value);
	for (uint8_t level = FLUSH_RANGE; level <= FLUSH_REGION; level++) {
		q->wr_id++;
		((struct later *)q)->wr_flush(q, mr->rkey, (uintptr_t)d.mem, 100, FLUSH_GLOBAL, level);
	}
	REQUIRE_EQ(ibv_wr_complete(q), 0);
	for (uint64_t i = 1; i <= 3; i++) {
		struct ibv_wc wc = test_wait(c.cq, IBV_WC_SUCCESS);

		REQUIRE_EQ(wc.wr_id, i);
		REQUIRE_EQ(wc.opcode, i == 1 ? IBV_WC_ATOMIC_WRITE : (enum ibv_wc_opcode)WC_FLUSH);
	}
	memcpy(&got, d.mem + 64, 8);
	REQUIRE_EQ(got, value);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	side_close(&c);
	side_close(&d);
}

/* Only what was asked for when the queue pair was made can be built, and one that asked for nothing has no builders. */
static void flags(struct ibv_context *context)
{
	struct side c;
	struct ibv_qp_init_attr_ex attr;

	side_open(&c, context);
	attr = side_init_attr(&c, IBV_QPT_RC);
	c.qp = ibv_create_qp_ex(context, &attr);
	REQUIRE(c.qp && ibv_qp_to_qp_ex(c.qp) == NULL);
	REQUIRE_EQ(ibv_destroy_qp(c.qp), 0);
	c.qp = NULL;
	attr = side_init_attr(&c, IBV_QPT_RC);
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_TSO;
	REQUIRE_ERRNO(ibv_create_qp_ex(context, &attr), EOPNOTSUPP);
	attr = side_init_attr(&c, IBV_QPT_UD);
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	REQUIRE_ERRNO(ibv_create_qp_ex(context, &attr), EOPNOTSUPP);
	side_close(&c);
}

static void datagrams(struct ibv_context *context)
{
	struct side u, v;
	struct ibv_ah_attr address = test_address(context);

	side_open(&u, context);
	side_open(&v, context);
	side_qp_ex(&u, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	side_qp_ex(&v, IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	test_ready(u.qp, 0);
	test_ready(v.qp, 0);
	struct ibv_ah *ah = ibv_create_ah(u.pd, &address);
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(u.qp);

	REQUIRE(ah != NULL && q != NULL);
	REQUIRE_EQ(test_post_recv(&v, 1, 0, 2000), 0);
	memset(u.mem, 0x5a, 500);
	ibv_wr_start(q);
	q->wr_id = 11;
	q->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(q, htonl(33));
	ibv_wr_set_ud_addr(q, ah, v.qp->qp_num, QKEY);
	ibv_wr_set_sge(q, u.mr->lkey, (uintptr_t)u.mem, 500);
	REQUIRE_EQ(ibv_wr_complete(q), 0);
	REQUIRE_EQ(test_wait(u.cq, IBV_WC_SUCCESS).wr_id, 11);
	struct ibv_wc wc = test_wait(v.cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.byte_len, 540);
	REQUIRE_EQ(wc.src_qp, u.qp->qp_num);
	REQUIRE_EQ(ntohl(wc.imm_data), 33);
	REQUIRE(wc.wc_flags & IBV_WC_GRH);
	REQUIRE(memcmp(v.mem + 40, u.mem, 500) == 0);

	ibv_wr_start(q);
	ibv_wr_send(q);
	ibv_wr_set_sge(q, u.mr->lkey, (uintptr_t)u.mem, 500);
	REQUIRE_EQ(ibv_wr_complete(q), EINVAL); /* no address */
	REQUIRE_EQ(ibv_destroy_ah(ah), 0);
	side_close(&u);
	side_close(&v);
}

int main(void)
{
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp_ex(&a, IBV_QPT_RC, ALL_OPS);
	side_qp_ex(&b, IBV_QPT_RC, ALL_OPS);
	test_connect(&a, &b);
	operations();
	batches();
	failures();
	flags(context);
	newer(context);
	datagrams(context);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
