/* The symbol that is there more than once: programs import ibv_query_gid_type from the private version node of the
 * rdma-core release that they were built with. libibverbs.map has the nodes, and the symbol itself in that of 44.0. */
#include "softnic.h"

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);

#define IN_NODE(n)                                                                                                     \
	SN_EXPORT int sn_query_gid_type_##n(struct ibv_context *context, uint8_t port, unsigned int index,             \
					    unsigned int *type);                                                       \
	int sn_query_gid_type_##n(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type)   \
	{                                                                                                              \
		return ibv_query_gid_type(context, port, index, type);                                                 \
	}                                                                                                              \
	__asm__(".symver sn_query_gid_type_" #n ", ibv_query_gid_type@IBVERBS_PRIVATE_" #n);

IN_NODE(22)
IN_NODE(25)
IN_NODE(33)
IN_NODE(57)
IN_NODE(59)
IN_NODE(64)
IN_NODE(65)
