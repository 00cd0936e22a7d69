/* XRC between two contexts of one process: a domain shared by a file, a target that the other context opens, and shared
 * receive queues that requests name. */
#include "testing.h"

#include <fcntl.h>
#include <unistd.h>

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int flags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags };

	return ibv_open_xrcd(context, &attr);
}

static struct ibv_srq *shared_queue(struct side *s, struct ibv_xrcd *xrcd, uint32_t *number)
{
	struct ibv_srq_init_attr_ex attr = {
		.srq_context = s, .attr = { .max_wr = SIDE_DEPTH, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = s->pd,
		.xrcd = xrcd, .cq = s->cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(s->context, &attr);

	REQUIRE(srq != NULL);
	REQUIRE_EQ(ibv_get_srq_num(srq, number), 0);
	return srq;
}

static void send_to(struct side *from, struct side *to, uint32_t number, struct ibv_qp *target, bool built)
{
	struct ibv_sge sge = side_sge(from, 0, 200);
	struct ibv_wc wc;

	memset(from->mem, (int)(number & 0x7f) + built, 200);
	memset(to->mem, 0, 200);
	REQUIRE_EQ(test_post_recv(to, 21, 0, 200), 0);
	if (built) {
		struct ibv_qp_ex *q = ibv_qp_to_qp_ex(from->qp);

		ibv_wr_start(q);
		q->wr_id = 20;
		q->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(q);
		ibv_wr_set_xrc_srqn(q, number);
		ibv_wr_set_sge(q, sge.lkey, sge.addr, sge.length);
		REQUIRE_EQ(ibv_wr_complete(q), 0);
	} else {
		struct ibv_send_wr wr = { .wr_id = 20, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
					  .sg_list = &sge, .num_sge = 1, .qp_type.xrc.remote_srqn = number };

		REQUIRE_EQ(test_post_send(from->qp, &wr), 0);
	}
	REQUIRE_EQ(test_wait(from->cq, IBV_WC_SUCCESS).wr_id, 20);
	wc = test_wait(to->cq, IBV_WC_SUCCESS);
	REQUIRE_EQ(wc.wr_id, 21);
	REQUIRE_EQ(wc.byte_len, 200);
	REQUIRE_EQ(wc.qp_num, target->qp_num);
	REQUIRE(memcmp(from->mem, to->mem, 200) == 0);
}

int main(void)
{
	struct ibv_context *one = test_open(), *two = test_open();
	struct side sender, first, second;
	char path[] = "/tmp/softnic-xrcd-XXXXXX";
	int fd = mkstemp(path);
	uint32_t n1, n2;

	REQUIRE(fd >= 0);
	unlink(path);
	REQUIRE_ERRNO(open_domain(one, fd, 0), EAGAIN);
	struct ibv_xrcd *x1 = open_domain(one, fd, O_CREAT), *x2 = open_domain(two, fd, O_CREAT);

	REQUIRE(x1 && x2);
	REQUIRE_ERRNO(open_domain(two, fd, O_CREAT | O_EXCL), EINVAL);
	struct ibv_xrcd *private = open_domain(one, -1, O_CREAT);

	REQUIRE(private != NULL);
	REQUIRE_EQ(ibv_close_xrcd(private), 0);

	side_open(&sender, one);
	side_open(&first, one);
	side_open(&second, two);
	first.srq = shared_queue(&first, x1, &n1);
	second.srq = shared_queue(&second, x2, &n2);
	REQUIRE(n1 != n2);
	side_qp_ex(&sender, IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND);

	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x1, .qp_context = &first };
	struct ibv_qp *target = ibv_create_qp_ex(one, &attr);

	REQUIRE(target != NULL);
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = target->qp_num, .xrcd = x2, .qp_context = &second, .qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *opened = ibv_open_qp(two, &open);

	REQUIRE(opened != NULL);
	REQUIRE_EQ(opened->qp_num, target->qp_num);
	REQUIRE(opened->qp_context == &second);
	open.qp_num ^= 0x55;
	REQUIRE_ERRNO(ibv_open_qp(two, &open), EINVAL);

	test_ready(target, sender.qp->qp_num);
	test_ready(sender.qp, target->qp_num);
	struct ibv_qp_attr state;
	struct ibv_qp_init_attr init;

	REQUIRE_EQ(ibv_query_qp(opened, &state, IBV_QP_STATE, &init), 0);
	REQUIRE_EQ(state.qp_state, IBV_QPS_RTS);
	for (int i = 0; i < 6; i++) {
		send_to(&sender, &first, n1, target, i & 1);
		send_to(&sender, &second, n2, target, i & 1);
	}
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad = NULL;

	REQUIRE_EQ(ibv_post_recv(target, &recv, &bad), EINVAL);
	REQUIRE_EQ(ibv_close_xrcd(x1), EBUSY);
	REQUIRE_EQ(ibv_destroy_qp(target), 0);
	send_to(&sender, &second, n2, opened, false); /* the other one keeps it */
	REQUIRE_EQ(ibv_destroy_qp(opened), 0);
	side_close(&sender);
	side_close(&first);
	side_close(&second);
	REQUIRE_EQ(ibv_close_xrcd(x1), 0);
	REQUIRE_EQ(ibv_close_xrcd(x2), 0);
	close(fd);
	REQUIRE_EQ(ibv_close_device(one), 0);
	REQUIRE_EQ(ibv_close_device(two), 0);
	return 0;
}
