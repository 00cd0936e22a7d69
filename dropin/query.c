/* Attributes of devices and ports, the GID and the P_Key table. */
#include "softnic.h"

#include "lid.h"

/* Copies what the caller's structure has room for, which may be older or newer than ours, and clears the rest of it. */
static void copy_out(void *to, size_t size, const void *from, size_t ours)
{
	size_t n = size < ours ? size : ours;

	memcpy(to, from, n);
	memset((uint8_t *)to + n, 0, size - n);
}

static void fill_device(struct ibv_device_attr *a, const struct softnic_ctl_query_device_reply *r)
{
	memset(a, 0, sizeof *a);
	memcpy(a->fw_ver, r->fw_ver, sizeof r->fw_ver);
	a->node_guid = __builtin_bswap64(r->node_guid);
	a->sys_image_guid = __builtin_bswap64(r->sys_image_guid);
	a->max_mr_size = r->max_mr_size;
	a->page_size_cap = r->page_size_cap;
	a->vendor_id = r->vendor_id;
	a->vendor_part_id = r->vendor_part_id;
	a->hw_ver = r->hw_ver;
	a->max_qp = (int)r->max_qp;
	a->max_qp_wr = (int)r->max_qp_wr;
	a->device_cap_flags = (unsigned int)r->device_cap_flags;
	a->max_sge = (int)r->max_sge;
	a->max_sge_rd = (int)r->max_sge_rd;
	a->max_cq = (int)r->max_cq;
	a->max_cqe = (int)r->max_cqe;
	a->max_mr = (int)r->max_mr;
	a->max_pd = (int)r->max_pd;
	a->max_qp_rd_atom = (int)r->max_qp_rd_atom;
	a->max_res_rd_atom = (int)r->max_res_rd_atom;
	a->max_qp_init_rd_atom = (int)r->max_qp_init_rd_atom;
	a->atomic_cap = (enum ibv_atomic_cap)r->atomic_cap;
	a->max_mw = (int)r->max_mw;
	a->max_mcast_grp = (int)r->max_mcast_grp;
	a->max_mcast_qp_attach = (int)r->max_mcast_qp_attach;
	a->max_total_mcast_qp_attach = (int)r->max_total_mcast_qp_attach;
	a->max_ah = (int)r->max_ah;
	a->max_srq = (int)r->max_srq;
	a->max_srq_wr = (int)r->max_srq_wr;
	a->max_srq_sge = (int)r->max_srq_sge;
	a->max_pkeys = (uint16_t)r->max_pkeys;
	a->local_ca_ack_delay = (uint8_t)r->local_ca_ack_delay;
	a->phys_port_cnt = (uint8_t)r->phys_port_cnt;
}

SN_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct softnic_ctl_query_device_reply r;
	int err = sn_call(sn_context_of(context), SOFTNIC_CTL_OP_QUERY_DEVICE, NULL, 0, &r, sizeof r);

	if (!err)
		fill_device(attr, &r);
	return err;
}

static uint16_t limit16(uint32_t n) { return n > UINT16_MAX ? UINT16_MAX : (uint16_t)n; }

/* On-demand paging is all there is: the device pins nothing, and pages are there when it looks at them. */
static void fill_odp(struct ibv_device_attr_ex *a)
{
	const uint32_t datagram = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t reliable = datagram | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

	a->odp_caps.general_caps = IBV_ODP_SUPPORT;
	a->odp_caps.per_transport_caps.rc_odp_caps = reliable;
	a->odp_caps.per_transport_caps.uc_odp_caps = datagram | IBV_ODP_SUPPORT_WRITE;
	a->odp_caps.per_transport_caps.ud_odp_caps = datagram;
	a->xrc_odp_caps = reliable;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
			   size_t attr_size)
{
	struct softnic_ctl_query_device_reply r;
	struct ibv_device_attr_ex a;
	int err;

	if (input && input->comp_mask)
		return EINVAL;
	err = sn_call(sn_context_of(context), SOFTNIC_CTL_OP_QUERY_DEVICE, NULL, 0, &r, sizeof r);
	if (err)
		return err;
	memset(&a, 0, sizeof a);
	fill_device(&a.orig_attr, &r);
	a.completion_timestamp_mask = r.timestamp_mask;
	a.hca_core_clock = r.hca_core_clock;
	a.device_cap_flags_ex = r.device_cap_flags;
	a.cq_mod_caps.max_cq_count = limit16(r.max_cq_mod_count);
	a.cq_mod_caps.max_cq_period = limit16(r.max_cq_mod_period);
	a.phys_port_cnt_ex = r.phys_port_cnt;
	fill_odp(&a);
	a.max_dm_size = SN_MAX_DM;
	copy_out(attr, attr_size, &a, sizeof a);
	return 0;
}

static int fill_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *a)
{
	struct softnic_ctl_query_port q = { .port = port };
	struct softnic_ctl_query_port_reply r;
	int err = sn_call(sn_context_of(context), SOFTNIC_CTL_OP_QUERY_PORT, &q, sizeof q, &r, sizeof r);

	if (err)
		return err;
	memset(a, 0, sizeof *a);
	a->state = (enum ibv_port_state)r.state;
	a->max_mtu = (enum ibv_mtu)r.max_mtu;
	a->active_mtu = (enum ibv_mtu)r.active_mtu;
	a->gid_tbl_len = (int)r.gid_tbl_len;
	a->port_cap_flags = r.port_cap_flags;
	a->max_msg_sz = r.max_msg_sz;
	a->bad_pkey_cntr = r.bad_pkey_cntr;
	a->qkey_viol_cntr = r.qkey_viol_cntr;
	a->pkey_tbl_len = (uint16_t)r.pkey_tbl_len;
	a->max_vl_num = 1; /* VL0 alone */
	a->active_width = (uint8_t)r.active_width;
	a->active_speed = (uint8_t)r.active_speed;
	a->phys_state = (uint8_t)r.phys_state;
	a->link_layer = (uint8_t)r.link_layer;
	a->flags = (uint8_t)r.flags;
	a->lid = sn_lid(context, port, a->gid_tbl_len);
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr a;
	int err = fill_port(context, port, &a);

	if (!err)
		copy_out(attr, size, &a, sizeof a);
	return err;
}

/* For programs of before the structure grew: it ends before port_cap_flags2. */
SN_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr a;
	int err = fill_port(context, port, &a);

	if (!err)
		memcpy(attr, &a, offsetof(struct ibv_port_attr, port_cap_flags2));
	return err;
}

static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *e)
{
	struct softnic_ctl_query_gid q = { .port = port, .index = index };
	struct softnic_ctl_query_gid_reply r;
	int err = sn_call(sn_context_of(context), SOFTNIC_CTL_OP_QUERY_GID, &q, sizeof q, &r, sizeof r);

	if (err)
		return err;
	memset(e, 0, sizeof *e);
	memcpy(e->gid.raw, r.gid, sizeof r.gid);
	e->gid_index = index;
	e->port_num = port;
	e->gid_type = r.type;
	e->ndev_ifindex = r.ifindex;
	return 0;
}

/* This one returns -1 and sets errno. An empty entry is all zeroes. */
SN_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry e;
	int err = query_gid(context, port, (uint32_t)index, &e);

	if (err == ENODATA) {
		memset(gid, 0, sizeof *gid);
		return 0;
	}
	if (err) {
		errno = err;
		return -1;
	}
	*gid = e.gid;
	return 0;
}

SN_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
				size_t entry_size)
{
	struct ibv_gid_entry e;
	int err;

	if (flags)
		return EOPNOTSUPP;
	err = query_gid(context, port, index, &e);
	if (!err)
		copy_out(entry, entry_size, &e, sizeof e);
	return err;
}

/* Returns how many entries there are, or a negated errno. */
SN_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, uint32_t flags,
				       size_t entry_size)
{
	uint32_t ports = sn_context_of(context)->attr.phys_port_cnt;
	size_t n = 0;

	if (flags)
		return -EOPNOTSUPP;
	for (uint32_t port = 1; port <= ports; port++) {
		struct ibv_port_attr a;
		int err = fill_port(context, (uint8_t)port, &a);

		for (uint32_t i = 0; !err && i < (uint32_t)a.gid_tbl_len; i++) {
			struct ibv_gid_entry e;

			err = query_gid(context, port, i, &e);
			if (err == ENODATA) {
				err = 0;
				continue;
			}
			if (err)
				break;
			if (n == max_entries)
				return -EINVAL;
			copy_out((uint8_t *)entries + n++ * entry_size, entry_size, &e, sizeof e);
		}
		if (err)
			return -err;
	}
	return (ssize_t)n;
}

/* The type as sysfs counts it: 0 IB or RoCE v1, 1 RoCE v2. It is private to rdma-core, and its programs use it. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);

SN_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type)
{
	struct ibv_gid_entry e;
	int err = query_gid(context, port, index, &e);

	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*type = !err && e.gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

SN_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	struct softnic_ctl_query_pkey q = { .port = port, .index = (uint32_t)index };
	struct softnic_ctl_query_pkey_reply r;
	int err = sn_call(sn_context_of(context), SOFTNIC_CTL_OP_QUERY_PKEY, &q, sizeof q, &r, sizeof r);

	if (err) {
		errno = err;
		return -1;
	}
	*pkey = __builtin_bswap16((uint16_t)r.pkey);
	return 0;
}

SN_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 k;

	for (int i = 0; ibv_query_pkey(context, port, i, &k) == 0; i++)
		if (k == pkey)
			return i;
	return -1;
}

void sn_install_query(struct sn_context *c)
{
	c->verbs.query_port = query_port;
	c->verbs.query_device_ex = query_device_ex;
	sn_public(c)->ops._compat_query_device = ibv_query_device;
	sn_public(c)->ops._compat_query_port = ibv_query_port;
}
