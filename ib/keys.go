package ib

import "fmt"

// QPN is a queue pair number, 24 bits.
type QPN uint32

// Queue pair numbers with a meaning of their own.
const (
	QPNMask          = 1<<24 - 1
	GSI          QPN = 1        // general services (QP1): connection management
	MulticastQPN QPN = 0xffffff // the destination of every multicast packet
)

func (q QPN) String() string { return fmt.Sprintf("%#06x", uint32(q)) }

// LKey names a memory region to its own device.
type LKey uint32

// RKey names a memory region, or a window on it, to a peer. Its low 8 bits are the variant that an application may choose
// for a type 2 window.
type RKey uint32

// QKey protects datagram queue pairs. With the top bit set it is controlled: only the privileged may set it
// (IBA 3.5.3).
type QKey uint32

// Controlled reports whether only privileged users may set this Q_Key on a queue pair.
func (k QKey) Controlled() bool { return k&(1<<31) != 0 }

// GSIQKey is the well-known Q_Key of QP1.
const GSIQKey QKey = 0x80010000

// PKey is a partition key: 15 bits of partition, the top bit for full membership.
type PKey uint16

// DefaultPKey is the only entry of an Ethernet port's table: default partition, full member.
const DefaultPKey PKey = 0xffff

// Matches reports whether packets with key o may reach a port with key k: the same partition, which is not 0,
// and one of both a full member (IBA 10.9.3).
func (k PKey) Matches(o PKey) bool {
	return k&0x7fff == o&0x7fff && k&0x7fff != 0 && (k|o)&0x8000 != 0
}
