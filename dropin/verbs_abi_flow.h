/* Flow steering and its counters in the public verbs ABI: the shapes of what this device answers with EOPNOTSUPP.
 * See verbs_abi.h. */
#ifndef SOFTNICD_VERBS_ABI_FLOW_H
#define SOFTNICD_VERBS_ABI_FLOW_H

#include "verbs_abi_structs.h"

struct ibv_flow_action_esp {
	uint32_t spi, seq, tfc_pad, flags;
	uint64_t hard_limit_pkts __attribute__((aligned(8)));
};

struct ibv_flow_action_esp_encap {
	union {
		void *val_ptr;
		uint64_t val_ptr_data_u64 __attribute__((aligned(8)));
	};
	union {
		struct ibv_flow_action_esp_encap *next_ptr;
		uint64_t next_ptr_data_u64 __attribute__((aligned(8)));
	};
	uint16_t len, type;
};

struct ibv_flow_action_esp_replay_bmp { uint32_t size; };

struct ibv_flow_action_esp_keymat_aes_gcm {
	uint64_t iv __attribute__((aligned(8)));
	uint32_t iv_algo, salt, icv_len, key_len;
	uint32_t aes_key[256 / 32];
};

struct ibv_flow_eth_filter { uint8_t dst_mac[6], src_mac[6]; uint16_t ether_type, vlan_tag; };

struct ibv_flow_spec_eth {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_eth_filter val, mask;
};

struct ibv_flow_ipv4_filter { uint32_t src_ip, dst_ip; };

struct ibv_flow_spec_ipv4 {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_ipv4_filter val, mask;
};

struct ibv_flow_ipv4_ext_filter { uint32_t src_ip, dst_ip; uint8_t proto, tos, ttl, flags; };

struct ibv_flow_spec_ipv4_ext {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_ipv4_ext_filter val, mask;
};

struct ibv_flow_ipv6_filter {
	uint8_t src_ip[16], dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr, traffic_class, hop_limit;
};

struct ibv_flow_spec_ipv6 {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_ipv6_filter val, mask;
};

struct ibv_flow_esp_filter { uint32_t spi, seq; };

struct ibv_flow_spec_esp {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_esp_filter val, mask;
};

struct ibv_flow_tcp_udp_filter { uint16_t dst_port, src_port; };

struct ibv_flow_spec_tcp_udp {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_tcp_udp_filter val, mask;
};

struct ibv_flow_gre_filter { uint16_t c_ks_res0_ver, protocol; uint32_t key; };

struct ibv_flow_spec_gre {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_gre_filter val, mask;
};

struct ibv_flow_mpls_filter { uint32_t label; };

struct ibv_flow_spec_mpls {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_mpls_filter val, mask;
};

struct ibv_flow_tunnel_filter { uint32_t tunnel_id; };

struct ibv_flow_spec_tunnel {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_tunnel_filter val, mask;
};

struct ibv_flow_spec_action_tag {
	enum ibv_flow_spec_type type;
	uint16_t size;
	uint32_t tag_id;
};

struct ibv_flow_spec_action_drop { enum ibv_flow_spec_type type; uint16_t size; };

struct ibv_flow_spec_action_handle {
	enum ibv_flow_spec_type type;
	uint16_t size;
	const struct ibv_flow_action *action;
};

struct ibv_flow_spec_counter_action {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_counters *counters;
};

struct ibv_flow_spec {
	union {
		struct {
			enum ibv_flow_spec_type type;
			uint16_t size;
		} hdr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ipv4;
		struct ibv_flow_spec_tcp_udp tcp_udp;
		struct ibv_flow_spec_ipv4_ext ipv4_ext;
		struct ibv_flow_spec_ipv6 ipv6;
		struct ibv_flow_spec_esp esp;
		struct ibv_flow_spec_tunnel tunnel;
		struct ibv_flow_spec_gre gre;
		struct ibv_flow_spec_mpls mpls;
		struct ibv_flow_spec_action_tag flow_tag;
		struct ibv_flow_spec_action_drop drop;
		struct ibv_flow_spec_action_handle handle;
		struct ibv_flow_spec_counter_action flow_count;
	};
};

struct ibv_flow_attr {
	uint32_t comp_mask;
	enum ibv_flow_attr_type type;
	uint16_t size, priority;
	uint8_t num_of_specs, port;
	uint32_t flags;
};

struct ibv_flow {
	uint32_t comp_mask;
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_flow_action { struct ibv_context *context; };

struct ibv_flow_action_esp_attr {
	struct ibv_flow_action_esp *esp_attr;
	enum ibv_flow_action_esp_keymat keymat_proto;
	uint16_t keymat_len;
	void *keymat_ptr;
	enum ibv_flow_action_esp_replay replay_proto;
	uint16_t replay_len;
	void *replay_ptr;
	struct ibv_flow_action_esp_encap *esp_encap;
	uint32_t comp_mask, esn;
};

struct ibv_counters_init_attr { uint32_t comp_mask; };
struct ibv_counters { struct ibv_context *context; };
struct ibv_counter_attach_attr { enum ibv_counter_description counter_desc; uint32_t index, comp_mask; };

#endif
