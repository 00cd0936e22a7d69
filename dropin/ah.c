/* Address handles. */
#include "softnic.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "lid.h"

SN_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct softnic_ctl_create_ah m = {
		.pd = pd->handle, .port = attr->port_num, .flow_label = attr->grh.flow_label, .sgid_index = attr->grh.sgid_index,
		.hop_limit = attr->grh.hop_limit, .traffic_class = attr->grh.traffic_class, .sl = attr->sl,
		.static_rate = attr->static_rate,
	};
	struct softnic_ctl_handle_reply r;
	struct sn_ah *a = calloc(1, sizeof *a);
	int err = ENOMEM;

	memcpy(m.dgid, attr->grh.dgid.raw, sizeof m.dgid);
	m.is_global = sn_lid_route(pd->context, attr, m.dgid, &m.sgid_index);
	if (a)
		err = sn_call(sn_context_of(pd->context), SOFTNIC_CTL_OP_CREATE_AH, &m, sizeof m, &r, sizeof r);
	if (err) {
		free(a);
		errno = err;
		return NULL;
	}
	a->ah = (struct ibv_ah){ .context = pd->context, .pd = pd, .handle = r.handle };
	return &a->ah;
}

SN_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	int err = sn_destroy(sn_context_of(ah->context), SOFTNIC_CTL_OP_DESTROY_AH, ah->handle);

	if (!err)
		free(ah);
	return err;
}

/* The ones' complement sum of a header of IPv4, 0xffff if its checksum is right (RFC 791). */
static uint32_t sum16(const uint8_t *h, size_t n)
{
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < n; i += 2)
		sum += (uint32_t)h[i] << 8 | h[i + 1];
	while (sum > 0xffff)
		sum = (sum >> 16) + (sum & 0xffff);
	return sum;
}

static void mapped_gid(union ibv_gid *gid, const uint8_t address[4])
{
	memset(gid, 0, sizeof *gid);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, address, 4);
}

/* Reads a network header the other way round: the 40 bytes in front of a datagram are 20 bytes of whatever and an IPv4
 * header whose checksum is right, or an IPv6 header. own is the GID that it was sent to. */
static bool route_back(const uint8_t *b, struct ibv_global_route *route, union ibv_gid *own)
{
	const uint8_t *h = b + 20;
	uint32_t first;

	memset(route, 0, sizeof *route);
	if (h[0] == (4 << 4 | 5) && sum16(h, 20) == 0xffff) {
		mapped_gid(&route->dgid, h + 12);
		mapped_gid(own, h + 16);
		route->traffic_class = h[1];
		route->hop_limit = h[8];
		return true;
	}
	if (b[0] >> 4 != 6)
		return false;
	memcpy(&first, b, sizeof first);
	first = ntohl(first);
	memcpy(route->dgid.raw, b + 8, 16);
	memcpy(own->raw, b + 24, 16);
	route->traffic_class = (uint8_t)(first >> 20);
	route->flow_label = first & 0xfffff;
	route->hop_limit = b[7];
	return true;
}

/* Returns the index of a GID in the port's table, or -1. */
static int own_index(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	struct ibv_port_attr a;

	if (sn_context_of(context)->verbs.query_port(context, port, &a, sizeof a))
		return -1;
	for (int i = 0; i < a.gid_tbl_len && i < 256; i++) {
		union ibv_gid g;

		if (ibv_query_gid(context, port, i, &g) == 0 && memcmp(&g, gid, sizeof g) == 0)
			return i;
	}
	return -1;
}

SN_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
				  struct ibv_ah_attr *attr)
{
	union ibv_gid own;
	int index;

	memset(attr, 0, sizeof *attr);
	if (!(wc->wc_flags & IBV_WC_GRH) || !route_back((const uint8_t *)grh, &attr->grh, &own)) {
		errno = EINVAL;
		return -1;
	}
	index = own_index(context, port, &own);
	if (index < 0) {
		errno = EINVAL; /* it was sent to a multicast group, say */
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	attr->dlid = wc->slid;
	attr->sl = 0; /* wc->sl is the kind of its network header: sn_cqe_sl */
	attr->src_path_bits = wc->dlid_path_bits;
	attr->is_global = 1;
	attr->port_num = port;
	return 0;
}

SN_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}
