/* Datagrams: to an address, answered from the completion, and to a multicast group. */
#include "testing.h"

#include <arpa/inet.h>

static void send_datagram(struct side *from, struct ibv_ah *ah, uint32_t qpn, uint8_t fill)
{
	struct ibv_sge sge = side_sge(from, 4096, 333);
	struct ibv_send_wr wr = { .wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };

	memset(from->mem + 4096, fill, 333);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	REQUIRE_EQ(test_post_send(from->qp, &wr), 0);
}

static void sent(struct side *s) { REQUIRE_EQ(test_wait(s->cq, IBV_WC_SUCCESS).opcode, IBV_WC_SEND); }

static struct ibv_wc expect(struct side *s, struct side *from, uint8_t fill)
{
	struct ibv_wc wc = test_wait(s->cq, IBV_WC_SUCCESS);

	REQUIRE_EQ(wc.opcode, IBV_WC_RECV);
	REQUIRE_EQ(wc.byte_len, 333 + 40);
	REQUIRE_EQ(wc.src_qp, from->qp->qp_num);
	REQUIRE(wc.wc_flags & IBV_WC_GRH);
	for (int i = 0; i < 333; i++)
		REQUIRE_EQ(s->mem[40 + i], fill);
	return wc;
}

int main(void)
{
	struct ibv_context *context = test_open();
	struct side s[3];
	struct ibv_ah_attr address = test_address(context), group = address;
	struct ibv_wc wc;

	for (int i = 0; i < 3; i++) {
		side_open(&s[i], context);
		struct ibv_qp_init_attr_ex attr = side_init_attr(&s[i], IBV_QPT_UD);

		/* The last one does not want to hear itself. */
		attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
		attr.create_flags = i == 2 ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
		s[i].qp = ibv_create_qp_ex(context, &attr);
		REQUIRE(s[i].qp != NULL);
		test_ready(s[i].qp, 0);
		REQUIRE_EQ(test_post_recv(&s[i], 1, 0, 2048), 0);
	}
	struct ibv_ah *ah = ibv_create_ah(s[0].pd, &address);

	REQUIRE(ah != NULL);
	send_datagram(&s[0], ah, s[1].qp->qp_num, 0x31);
	sent(&s[0]);
	wc = expect(&s[1], &s[0], 0x31);
	struct ibv_ah *back = ibv_create_ah_from_wc(s[1].pd, &wc, (struct ibv_grh *)s[1].mem, 1);

	REQUIRE(back != NULL);
	send_datagram(&s[1], back, wc.src_qp, 0x32);
	sent(&s[1]);
	expect(&s[0], &s[1], 0x32);
	REQUIRE_EQ(ibv_destroy_ah(back), 0);

	/* Two members and a sender that is one too. */
	static const uint8_t gid[16] = { [10] = 0xff, 0xff, 239, 1, 2, 3 };

	memcpy(group.grh.dgid.raw, gid, 16);
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			REQUIRE_EQ(test_post_recv(&s[i], 1, 0, 2048), 0);
		int error = ibv_attach_mcast(s[i].qp, &group.grh.dgid, 0);

		if (error == EOPNOTSUPP) {
			fprintf(stderr, "the device's network has no groups\n");
			return 77;
		}
		REQUIRE_EQ(error, 0);
	}
	REQUIRE_EQ(ibv_attach_mcast(s[0].qp, &address.grh.dgid, 0), EINVAL);
	struct ibv_ah *all = ibv_create_ah(s[0].pd, &group);

	REQUIRE(all != NULL);
	send_datagram(&s[0], all, 0xffffff, 0x33);
	/* The sender's own completion may come before or after what it hears. */
	if (test_wait(s[0].cq, IBV_WC_SUCCESS).opcode == IBV_WC_SEND)
		expect(&s[0], &s[0], 0x33);
	else
		sent(&s[0]);
	expect(&s[1], &s[0], 0x33);
	expect(&s[2], &s[0], 0x33);
	struct ibv_ah *too = ibv_create_ah(s[2].pd, &group);

	REQUIRE(too != NULL);
	for (int i = 0; i < 3; i++)
		REQUIRE_EQ(test_post_recv(&s[i], 1, 0, 2048), 0);
	send_datagram(&s[2], too, 0xffffff, 0x35);
	sent(&s[2]);
	expect(&s[0], &s[2], 0x35);
	expect(&s[1], &s[2], 0x35);
	test_quiet(s[2].cq);
	REQUIRE_EQ(ibv_destroy_ah(too), 0);
	REQUIRE_EQ(ibv_destroy_qp(s[0].qp), EBUSY);
	for (int i = 0; i < 3; i++)
		REQUIRE_EQ(ibv_detach_mcast(s[i].qp, &group.grh.dgid, 0), 0);
	REQUIRE_EQ(ibv_detach_mcast(s[0].qp, &group.grh.dgid, 0), EINVAL);
	REQUIRE_EQ(test_post_recv(&s[1], 1, 0, 2048), 0);
	send_datagram(&s[0], all, 0xffffff, 0x34);
	sent(&s[0]);
	test_quiet(s[1].cq);
	REQUIRE_EQ(ibv_destroy_ah(all), 0);
	REQUIRE_EQ(ibv_destroy_ah(ah), 0);
	for (int i = 0; i < 3; i++)
		side_close(&s[i]);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
