package nic

import "github.com/softnic/softnicd/ib"

// Profiles returns the profiles that there are, the default one first. Who tests with the one that resembles his
// production finds what other devices forgive: a queue deeper than the device's, the wrong GID index.
//
// A profile never promises more than the device that it resembles. Where that device has more than softnicd, as of memory
// regions, for which tables are made, the limit is softnicd's.
func Profiles() []Profile { return []Profile{Softnic(), RXE(), ConnectX(), IRDMA()} }

// Profile returns how the device presents itself.
func (d *Device) Profile() Profile { return d.profile }

// RXE is how Linux rxe presents itself: its limits on completion queues, inline data and messages, its rule for slots, and
// the default GID in entry 0. The names are those of the kernel's rxe_param.h.
func RXE() Profile {
	p := Softnic()
	p.Name = "rxe"
	p.Limits.MaxCQE = 1<<15 - 1   // RXE_MAX_LOG_CQE, less one
	p.Limits.MaxInlineData = 400  // RXE_MAX_INLINE_DATA before it followed from the 32 entries of a request, 512 since
	p.Limits.MaxMessage = 8 << 20 // RXE_PORT_MAX_MSG_SZ
	p.Limits.MaxSRQSGE = 27       // RXE_MAX_SRQ_SGE
	p.Limits.PKeyTableLen = 64    // RXE_PORT_PKEY_TBL_LEN; 1 in some kernels of 5.x
	p.GIDs.DefaultFirst = true    // as the kernel has it for every RoCE port
	p.ReclaimOnCompletion = true  // rxe frees the slot of a request when it completes
	return p
}

// ConnectX is how a ConnectX-6 on Ethernet presents itself: every address is in the GID table twice, for RoCE v1 and then
// for v2. What stands in its firmware's capabilities is from ibv_devinfo -v of such a card, the rest from the kernel's
// mlx5_ib_query_device and mlx5_query_port_roce. The inline data that a queue pair gets is the provider's choice there,
// 60 to 956 bytes; it is softnicd's here.
func ConnectX() Profile {
	p := Softnic()
	p.Name = "connectx"
	p.FWVer, p.VendorID, p.VendorPartID = "20.37.1700", 0x02c9, 4123 // firmware 20 is that of device 101b
	p.PageSizeCap = 0xfffffffffffff000                               // all powers of two from log_pg_sz on
	p.AckDelay = 16                                                  // local_ca_ack_delay
	p.MaxPKeys = 128                                                 // pkey_table_size; the port's table has one on Ethernet
	p.PortCaps = portCM | portIPBased                                // IB_PORT_CM_SUP and ip_gids
	p.Limits.MaxSGE = 30                                             // as many as max_wqe_sz_sq, 512 bytes, holds beside its headers
	p.Limits.MaxMessage = 1 << 30                                    // log_max_msg
	p.Limits.MaxSRQSGE = 31                                          // of max_wqe_sz_rq, without an SRQ's next segment
	p.Limits.MaxRDAtomic = 16                                        // log_max_ra_req_qp, log_max_ra_res_qp
	p.GIDs = GIDShape{Types: []ib.GIDType{ib.GIDTypeRoCEv1, ib.GIDTypeRoCEv2}, DefaultFirst: true}
	return p
}

// IRDMA is how an Intel E810 in RoCE v2 mode presents itself: short queues, few scatter/gather entries, little inline data,
// 32 GIDs. The names are those of the kernel's irdma_query_device, irdma_query_port, defs.h, user.h and icrdma_hw.h.
//
// Unlike such a card it has shared receive queues and a local ACK delay, and as many requests of its own outstanding as it
// takes of others.
func IRDMA() Profile {
	p := Softnic()
	p.Name = "irdma"
	p.FWVer, p.VendorID = "1.71", 0x8086
	p.VendorPartID, p.HWVer = 0x1592, 2            // the PCI device, ICE_DEV_ID_E810C_QSFP, and its revision
	p.PageSizeCap = 4<<10 | 2<<20 | 1<<30          // SZ_4K | SZ_2M | SZ_1G
	p.PortCaps = portCM | portReinit | portIPBased // IB_PORT_CM_SUP, IB_PORT_REINIT_SUP and ip_gids
	p.Limits.MaxQPWR = 4063                        // IRDMA_MAX_QP_WRS: 32768 quanta less 258, by 8 a request
	p.Limits.MaxSGE = 13                           // IRDMA_MAX_WQ_FRAGMENT_COUNT
	p.Limits.MaxInlineData = 101                   // IRDMA_MAX_INLINE_DATA_SIZE
	p.Limits.MaxCQE = 1<<20 - 2                    // IRDMA_MAX_CQ_SIZE less one
	p.Limits.MaxMessage = 1<<31 - 1                // IRDMA_MAX_OUTBOUND_MSG_SIZE
	p.Limits.MaxRDAtomic = 127                     // ICRDMA_MAX_IRD_SIZE; ICRDMA_MAX_ORD_SIZE is 255
	p.Limits.GIDTableLen = 32                      // irdma_query_port
	p.Limits.PKeyTableLen = 1                      // IRDMA_PKEY_TBL_SZ
	p.GIDs.DefaultFirst = true
	return p
}
