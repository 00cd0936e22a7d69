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
// the default GID in entry 0.
func RXE() Profile {
	p := Softnic()
	p.Name = "rxe"
	p.Limits.MaxCQE = 1<<15 - 1
	p.Limits.MaxInlineData = 400
	p.Limits.MaxMessage = 8 << 20
	p.Limits.MaxSRQSGE = 27
	p.Limits.PKeyTableLen = 64
	p.Limits.NumCompVectors = 1
	p.GIDs.DefaultFirst = true
	p.ReclaimOnCompletion = true
	return p
}

// ConnectX is how a ConnectX-6 Dx on Ethernet presents itself: every address is in the GID table twice, for RoCE v1 and then
// for v2.
func ConnectX() Profile {
	p := Softnic()
	p.Name = "connectx"
	p.FWVer, p.VendorID, p.VendorPartID = "20.37.1700", 0x02c9, 4125
	p.PageSizeCap, p.AckDelay, p.MaxPKeys, p.PortCaps = 0xfffffffffffff000, 16, 128, portCM|portIPBased
	p.Limits.MaxSGE = 30
	p.Limits.MaxMessage = 1 << 30
	p.Limits.MaxSRQSGE = 31
	p.Limits.MaxRDAtomic = 16
	p.GIDs = GIDShape{Types: []ib.GIDType{ib.GIDTypeRoCEv1, ib.GIDTypeRoCEv2}, DefaultFirst: true}
	return p
}

// IRDMA is how an Intel E810 in RoCE v2 mode presents itself: short queues, few scatter/gather entries, little inline data,
// 32 GIDs.
func IRDMA() Profile {
	p := Softnic()
	p.Name = "irdma"
	p.FWVer, p.VendorID, p.VendorPartID, p.HWVer = "1.71", 0x8086, 0x1592, 2
	p.Limits.MaxQPWR = 4063
	p.Limits.MaxSGE = 13
	p.Limits.MaxInlineData = 101
	p.Limits.MaxCQE = 1<<20 - 2
	p.Limits.MaxMessage = 1<<31 - 1
	p.Limits.MaxRDAtomic = 127
	p.Limits.GIDTableLen = 32
	p.GIDs.DefaultFirst = true
	return p
}
