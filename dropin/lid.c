/* LIDs for programs that know no other address.
 *
 * An InfiniBand subnet has 16-bit local identifiers; RoCE has none, ports have LID 0, and an address without a GRH is
 * refused (IBA A17.3.1). With $SOFTNICD_LIDS set, `softnicd exec --lids`, the LID of a port is the low half of its first
 * IPv4 address, and an address without a GRH goes to the host of that LID whose address has the same high half: all hosts
 * must be in one /16. Such LIDs may be 0, or in the range that InfiniBand keeps for groups: programs that judge them see
 * that it is not InfiniBand. */
#include "lid.h"

#include <stdlib.h>

static bool wanted(void)
{
	const char *v = getenv("SOFTNICD_LIDS");

	return v && *v && strcmp(v, "0") != 0;
}

/* The first GID of a port that is an IPv4 address, ::ffff:a.b.c.d, in its table of so many. */
static bool own(struct ibv_context *context, uint8_t port, int table, union ibv_gid *gid, uint32_t *index)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	for (int i = 0; i < table; i++) {
		if (ibv_query_gid(context, port, i, gid))
			return false;
		if (memcmp(gid->raw, mapped, sizeof mapped) == 0) {
			*index = (uint32_t)i;
			return true;
		}
	}
	return false;
}

uint16_t sn_lid(struct ibv_context *context, uint8_t port, int table)
{
	union ibv_gid gid;
	uint32_t index;

	return wanted() && own(context, port, table, &gid, &index) ? (uint16_t)(gid.raw[14] << 8 | gid.raw[15]) : 0;
}

bool sn_lid_route(struct ibv_context *context, const struct ibv_ah_attr *attr, uint8_t dgid[16], uint32_t *sgid_index)
{
	uint8_t port = attr->port_num ? attr->port_num : 1;
	struct ibv_port_attr p;
	union ibv_gid gid;

	if (attr->is_global)
		return true;
	if (!wanted() || sn_context_of(context)->verbs.query_port(context, port, &p, sizeof p) ||
	    !own(context, port, p.gid_tbl_len, &gid, sgid_index))
		return false;
	gid.raw[14] = (uint8_t)(attr->dlid >> 8);
	gid.raw[15] = (uint8_t)attr->dlid;
	memcpy(dgid, gid.raw, sizeof gid.raw);
	return true;
}
