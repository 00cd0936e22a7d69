/* Structures of the kernel's connection manager, turned into those of verbs. librdmacm imports these, and whoever links it
 * with this library needs them to be there. */
#include "softnic.h"

/* As in the kernel's interface, rdma/ib_user_verbs.h and rdma/ib_user_sa.h. */
struct kern_ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class, reserved_grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num, reserved;
};
_Static_assert(sizeof(struct kern_ah_attr) == 32, "ib_uverbs_ah_attr");

struct kern_qp_attr {
	uint32_t qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
	struct kern_ah_attr ah_attr, alt_ah_attr;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
		alt_port_num, alt_timeout, reserved[5];
};
_Static_assert(sizeof(struct kern_qp_attr) == 144, "ib_uverbs_qp_attr");

struct kern_path_rec {
	uint8_t dgid[16], sgid[16];
	__be16 dlid, slid;
	uint32_t raw_traffic;
	__be32 flow_label;
	uint32_t reversible, mtu;
	__be16 pkey;
	uint8_t hop_limit, traffic_class, numb_path, sl, mtu_selector, rate_selector, rate, packet_life_time_selector, packet_life_time,
		preference;
};
_Static_assert(sizeof(struct kern_path_rec) == 64, "ib_user_path_rec");

/* As in infiniband/sa.h. */
struct path_rec {
	union ibv_gid dgid, sgid;
	__be16 dlid, slid;
	int raw_traffic;
	__be32 flow_label;
	uint8_t hop_limit, traffic_class;
	int reversible;
	uint8_t numb_path;
	__be16 pkey;
	uint8_t sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference;
};
_Static_assert(sizeof(struct path_rec) == 64, "ibv_sa_path_rec");

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, const void *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, const void *src);
void ibv_copy_path_rec_from_kern(struct path_rec *dst, const void *src);
void ibv_copy_path_rec_to_kern(void *dst, const struct path_rec *src);

static void copy_ah_attr(struct ibv_ah_attr *a, const struct kern_ah_attr *k)
{
	memcpy(a->grh.dgid.raw, k->dgid, sizeof k->dgid);
	a->grh.flow_label = k->flow_label;
	a->grh.sgid_index = k->sgid_index;
	a->grh.hop_limit = k->hop_limit;
	a->grh.traffic_class = k->traffic_class;
	a->dlid = k->dlid;
	a->sl = k->sl;
	a->src_path_bits = k->src_path_bits;
	a->static_rate = k->static_rate;
	a->is_global = k->is_global;
	a->port_num = k->port_num;
}

SN_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, const void *src) { copy_ah_attr(dst, src); }

SN_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *a, const void *src)
{
	const struct kern_qp_attr *k = src;

	a->qp_state = (enum ibv_qp_state)k->qp_state;
	a->cur_qp_state = (enum ibv_qp_state)k->cur_qp_state;
	a->path_mtu = (enum ibv_mtu)k->path_mtu;
	a->path_mig_state = (enum ibv_mig_state)k->path_mig_state;
	a->qkey = k->qkey;
	a->rq_psn = k->rq_psn;
	a->sq_psn = k->sq_psn;
	a->dest_qp_num = k->dest_qp_num;
	a->qp_access_flags = k->qp_access_flags;
	a->cap = (struct ibv_qp_cap){ k->max_send_wr, k->max_recv_wr, k->max_send_sge, k->max_recv_sge, k->max_inline_data };
	copy_ah_attr(&a->ah_attr, &k->ah_attr);
	copy_ah_attr(&a->alt_ah_attr, &k->alt_ah_attr);
	a->pkey_index = k->pkey_index;
	a->alt_pkey_index = k->alt_pkey_index;
	a->en_sqd_async_notify = k->en_sqd_async_notify;
	a->sq_draining = k->sq_draining;
	a->max_rd_atomic = k->max_rd_atomic;
	a->max_dest_rd_atomic = k->max_dest_rd_atomic;
	a->min_rnr_timer = k->min_rnr_timer;
	a->port_num = k->port_num;
	a->timeout = k->timeout;
	a->retry_cnt = k->retry_cnt;
	a->rnr_retry = k->rnr_retry;
	a->alt_port_num = k->alt_port_num;
	a->alt_timeout = k->alt_timeout;
}

SN_EXPORT void ibv_copy_path_rec_from_kern(struct path_rec *p, const void *src)
{
	const struct kern_path_rec *k = src;

	memcpy(&p->dgid, k->dgid, sizeof k->dgid);
	memcpy(&p->sgid, k->sgid, sizeof k->sgid);
	p->dlid = k->dlid;
	p->slid = k->slid;
	p->raw_traffic = (int)k->raw_traffic;
	p->flow_label = k->flow_label;
	p->hop_limit = k->hop_limit;
	p->traffic_class = k->traffic_class;
	p->reversible = (int)k->reversible;
	p->numb_path = k->numb_path;
	p->pkey = k->pkey;
	p->sl = k->sl;
	p->mtu_selector = k->mtu_selector;
	p->mtu = (uint8_t)k->mtu;
	p->rate_selector = k->rate_selector;
	p->rate = k->rate;
	p->packet_life_time_selector = k->packet_life_time_selector;
	p->packet_life_time = k->packet_life_time;
	p->preference = k->preference;
}

SN_EXPORT void ibv_copy_path_rec_to_kern(void *dst, const struct path_rec *p)
{
	struct kern_path_rec *k = dst;

	memcpy(k->dgid, &p->dgid, sizeof k->dgid);
	memcpy(k->sgid, &p->sgid, sizeof k->sgid);
	k->dlid = p->dlid;
	k->slid = p->slid;
	k->raw_traffic = (uint32_t)p->raw_traffic;
	k->flow_label = p->flow_label;
	k->hop_limit = p->hop_limit;
	k->traffic_class = p->traffic_class;
	k->reversible = (uint32_t)p->reversible;
	k->numb_path = p->numb_path;
	k->pkey = p->pkey;
	k->sl = p->sl;
	k->mtu_selector = p->mtu_selector;
	k->mtu = p->mtu;
	k->rate_selector = p->rate_selector;
	k->rate = p->rate;
	k->packet_life_time_selector = p->packet_life_time_selector;
	k->packet_life_time = p->packet_life_time;
	k->preference = p->preference;
}

/* The link layer addresses of a path are the daemon's business; nobody above verbs needs them here. */
SN_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[ETHERNET_LL_SIZE],
					  uint16_t *vid)
{
	(void)context, (void)attr, (void)mac, (void)vid;
	errno = EOPNOTSUPP;
	return -1;
}
