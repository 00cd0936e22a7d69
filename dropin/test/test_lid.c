/* LIDs, for programs that name their peer by one: only who asks has them. */
#include "testing.h"

static uint16_t lid(struct ibv_context *context)
{
	struct ibv_port_attr port;

	REQUIRE_EQ(ibv_query_port(context, 1, &port), 0);
	REQUIRE_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	return port.lid;
}

/* To RTR, with an address that has a DLID and no GRH. */
static int connect_to(struct ibv_qp *qp, uint16_t dlid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .dlid = dlid, .port_num = 1 },
	};

	REQUIRE_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr.qp_state = IBV_QPS_RTR;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int main(void)
{
	struct ibv_context *context = test_open();
	struct ibv_ah_attr address = { .dlid = 1, .port_num = 1 };
	union ibv_gid gid = test_address(context).grh.dgid;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_ah *ah;
	struct side s;

	side_open(&s, context);
	side_qp(&s, IBV_QPT_RC);

	unsetenv("SOFTNICD_LIDS");
	REQUIRE_EQ(lid(context), 0);
	REQUIRE_ERRNO(ibv_create_ah(s.pd, &address), EINVAL);
	REQUIRE_EQ(connect_to(s.qp, 1), EINVAL);

	setenv("SOFTNICD_LIDS", "1", 1);
	address.dlid = lid(context);
	REQUIRE_EQ(address.dlid, gid.raw[14] << 8 | gid.raw[15]);
	ah = ibv_create_ah(s.pd, &address);
	REQUIRE(ah != NULL);
	REQUIRE_EQ(ibv_destroy_ah(ah), 0);
	attr.qp_state = IBV_QPS_RESET;
	REQUIRE_EQ(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE), 0);
	REQUIRE_EQ(connect_to(s.qp, address.dlid), 0);
	REQUIRE_EQ(ibv_query_qp(s.qp, &attr, IBV_QP_AV, &init), 0);
	REQUIRE_EQ(attr.ah_attr.is_global, 1);
	REQUIRE(memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof(gid)) == 0);

	side_close(&s);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
