/* The attributes of queue pairs, in the public structure and in messages. */
#include "softnic.h"

_Static_assert(IBV_QP_STATE == 1 << 0 && IBV_QP_ACCESS_FLAGS == 1 << 3 && IBV_QP_AV == 1 << 7 && IBV_QP_PATH_MTU == 1 << 8 &&
	       IBV_QP_RQ_PSN == 1 << 12 && IBV_QP_SQ_PSN == 1 << 16 && IBV_QP_DEST_QPN == 1 << 20 && IBV_QP_RATE_LIMIT == 1 << 25, "mask");

/* The path. DLID and path bits mean nothing on Ethernet. */
static void put_path(struct softnic_ctl_qp_attr *m, const struct ibv_ah_attr *a)
{
	memcpy(m->dgid, a->grh.dgid.raw, sizeof m->dgid);
	m->flow_label = a->grh.flow_label;
	m->sgid_index = a->grh.sgid_index;
	m->hop_limit = a->grh.hop_limit;
	m->traffic_class = a->grh.traffic_class;
	m->sl = a->sl;
	m->is_global = a->is_global != 0;
	m->ah_port = a->port_num;
	m->static_rate = a->static_rate;
}

/* Fields that mask does not name may hold anything, and stay behind. */
void sn_qp_attr_to(struct softnic_ctl_qp_attr *m, const struct ibv_qp_attr *a, int mask)
{
	memset(m, 0, sizeof *m);
#define FIELD(bit, to, from)            \
	do {                            \
		if (mask & (bit))       \
			m->to = a->from; \
	} while (0)
	FIELD(IBV_QP_STATE, state, qp_state);
	FIELD(IBV_QP_CUR_STATE, cur_state, cur_qp_state);
	FIELD(IBV_QP_PATH_MTU, path_mtu, path_mtu);
	FIELD(IBV_QP_PATH_MIG_STATE, path_mig_state, path_mig_state);
	FIELD(IBV_QP_QKEY, qkey, qkey);
	FIELD(IBV_QP_RQ_PSN, rq_psn, rq_psn);
	FIELD(IBV_QP_SQ_PSN, sq_psn, sq_psn);
	FIELD(IBV_QP_DEST_QPN, dest_qpn, dest_qp_num);
	FIELD(IBV_QP_ACCESS_FLAGS, access_flags, qp_access_flags);
	FIELD(IBV_QP_PKEY_INDEX, pkey_index, pkey_index);
	FIELD(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify, en_sqd_async_notify);
	FIELD(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic, max_rd_atomic);
	FIELD(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, max_dest_rd_atomic);
	FIELD(IBV_QP_MIN_RNR_TIMER, min_rnr_timer, min_rnr_timer);
	FIELD(IBV_QP_PORT, port_num, port_num);
	FIELD(IBV_QP_TIMEOUT, timeout, timeout);
	FIELD(IBV_QP_RETRY_CNT, retry_cnt, retry_cnt);
	FIELD(IBV_QP_RNR_RETRY, rnr_retry, rnr_retry);
	FIELD(IBV_QP_RATE_LIMIT, rate_limit, rate_limit);
#undef FIELD
	m->en_sqd_async_notify = m->en_sqd_async_notify != 0;
	/* Only 24 bits of these are a number; programs leave random ones above. */
	m->rq_psn &= 0xffffff;
	m->sq_psn &= 0xffffff;
	if (mask & IBV_QP_AV)
		put_path(m, &a->ah_attr);
}

void sn_qp_attr_from(struct ibv_qp_attr *a, const struct softnic_ctl_qp_attr *m)
{
	memset(a, 0, sizeof *a);
	a->qp_state = (enum ibv_qp_state)m->state;
	a->cur_qp_state = (enum ibv_qp_state)m->cur_state;
	a->path_mtu = (enum ibv_mtu)m->path_mtu;
	a->path_mig_state = (enum ibv_mig_state)m->path_mig_state;
	a->qkey = m->qkey;
	a->rq_psn = m->rq_psn;
	a->sq_psn = m->sq_psn;
	a->dest_qp_num = m->dest_qpn;
	a->qp_access_flags = m->access_flags;
	a->pkey_index = (uint16_t)m->pkey_index;
	a->en_sqd_async_notify = (uint8_t)m->en_sqd_async_notify;
	a->sq_draining = (uint8_t)m->sq_draining;
	a->max_rd_atomic = (uint8_t)m->max_rd_atomic;
	a->max_dest_rd_atomic = (uint8_t)m->max_dest_rd_atomic;
	a->min_rnr_timer = (uint8_t)m->min_rnr_timer;
	a->port_num = (uint8_t)m->port_num;
	a->timeout = (uint8_t)m->timeout;
	a->retry_cnt = (uint8_t)m->retry_cnt;
	a->rnr_retry = (uint8_t)m->rnr_retry;
	a->rate_limit = m->rate_limit;
	memcpy(a->ah_attr.grh.dgid.raw, m->dgid, sizeof m->dgid);
	a->ah_attr.grh.flow_label = m->flow_label;
	a->ah_attr.grh.sgid_index = (uint8_t)m->sgid_index;
	a->ah_attr.grh.hop_limit = (uint8_t)m->hop_limit;
	a->ah_attr.grh.traffic_class = (uint8_t)m->traffic_class;
	a->ah_attr.sl = (uint8_t)m->sl;
	a->ah_attr.is_global = (uint8_t)m->is_global;
	a->ah_attr.port_num = (uint8_t)m->ah_port;
	a->ah_attr.static_rate = (uint8_t)m->static_rate;
}
