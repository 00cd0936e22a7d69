package nic

import (
	"runtime"
	"time"

	"github.com/softnic/softnicd/abi"
)

// Limits are what a device offers at most, and how its engines behave. The zero value of a field means the default.
type Limits struct {
	MaxQP          uint32
	MaxQPWR        uint32 // work requests of one queue
	MaxSGE         uint32
	MaxInlineData  uint32 // bytes
	MaxCQ          uint32
	MaxCQE         uint32
	MaxMR          uint32
	MaxMW          uint32 // memory windows; zero means as many as regions, if that is given
	MaxSRQ         uint32
	MaxSRQWR       uint32
	MaxSRQSGE      uint32 // zero means as MaxSGE, if that is given
	MaxPD          uint32
	MaxAH          uint32 // address handles
	MaxRDAtomic    uint32 // READs and atomics outstanding on one queue pair, either way
	MaxContexts    uint32
	MaxMessage     uint64 // bytes
	GIDTableLen    uint32
	PKeyTableLen   uint32
	NumCompVectors uint32
	// MaxMapped is the bytes of application memory that all contexts together may have charged; see
	// [Context.ChargeMemory].
	MaxMapped uint64
	// AckFloor is the least effective local ACK timeout: a busy host stalls longer than short timeouts ask for.
	// Negative means none, for virtual time.
	AckFloor time.Duration
	// Probe is the least silence of a peer after which the oldest packet is sent once more, to ask; negative for none.
	Probe time.Duration
	// InFlight bounds the bytes that all queue pairs together have outstanding: below the receive buffer of a peer, which
	// they overrun otherwise. Negative means no bound.
	InFlight int
	// LineRate is what the network is taken to carry, bits a second: where congestion control begins and ends.
	LineRate uint64
	// NoCNP leaves packets that were marked on their way without an answer. NoDCQCN neither asks for marks nor heeds CNPs.
	NoCNP, NoDCQCN bool
	// Window is the most packets a queue pair has outstanding, AckEvery how often a long message asks for an
	// acknowledgement.
	Window, AckEvery int
}

// share returns a shard's part of the bound on what is in flight: enough for a queue pair to keep going by itself.
func (l *Limits) share(shards int) int {
	if l.InFlight <= 0 {
		return l.InFlight
	}
	return max(l.InFlight/shards, min(l.InFlight, leastShare))
}

const leastShare = 256 << 10

// DefaultLimits returns the limits of the profile "softnic". The tables of queue pairs and keys are made for them in New,
// 5 MiB; a simulator asks for less.
func DefaultLimits() Limits {
	return Limits{
		MaxQP:          16384,
		MaxQPWR:        16384,
		MaxSGE:         abi.MaxSGE,
		MaxInlineData:  512,
		MaxCQ:          65536,
		MaxCQE:         4194303,
		MaxMR:          65536,
		MaxMW:          65536,
		MaxSRQ:         16384,
		MaxSRQWR:       16384,
		MaxSRQSGE:      abi.MaxSGE,
		MaxPD:          65536,
		MaxAH:          65536,
		MaxRDAtomic:    128,
		MaxContexts:    256,
		MaxMessage:     1 << 31, // IBA 9.7.7: the longest there is
		GIDTableLen:    256,
		PKeyTableLen:   1,
		NumCompVectors: uint32(runtime.NumCPU()),
		MaxMapped:      1 << 40,
		// A thread that wants a processor waits for one or two time slices of 3 ms; longer stalls are rare enough to be
		// paid for with packets that are sent again.
		AckFloor: 4 * time.Millisecond,
		Probe:    time.Millisecond,
		InFlight: 2 << 20,
		LineRate: 10e9,
		// Two full groups of segmentation offload at a path MTU of 4096 for each acknowledgement: a window that opens by
		// less makes smaller groups, and what the kernel does for a group costs as much as a dozen packets.
		Window:   256,
		AckEvery: 30,
	}
}

// fill puts d where nothing was said, and keeps within what the rest of the project can do.
func (l Limits) fill(d Limits) Limits {
	fill(&l.MaxQP, d.MaxQP)
	fill(&l.MaxQPWR, d.MaxQPWR)
	fill(&l.MaxSRQSGE, l.MaxSGE) // likewise of entries
	fill(&l.MaxSGE, d.MaxSGE)
	fill(&l.MaxSRQSGE, d.MaxSRQSGE)
	fill(&l.MaxInlineData, d.MaxInlineData)
	fill(&l.MaxCQ, d.MaxCQ)
	fill(&l.MaxCQE, d.MaxCQE)
	fill(&l.MaxMW, l.MaxMR) // of who says how many regions there are
	fill(&l.MaxMR, d.MaxMR)
	fill(&l.MaxMW, d.MaxMW)
	fill(&l.MaxSRQ, d.MaxSRQ)
	fill(&l.MaxSRQWR, d.MaxSRQWR)
	fill(&l.MaxPD, d.MaxPD)
	fill(&l.MaxAH, d.MaxAH)
	fill(&l.MaxRDAtomic, d.MaxRDAtomic)
	fill(&l.MaxContexts, d.MaxContexts)
	fill(&l.MaxMessage, d.MaxMessage)
	fill(&l.GIDTableLen, d.GIDTableLen)
	fill(&l.PKeyTableLen, d.PKeyTableLen)
	fill(&l.NumCompVectors, d.NumCompVectors)
	fill(&l.MaxMapped, d.MaxMapped)
	fill(&l.AckFloor, d.AckFloor)
	fill(&l.Probe, d.Probe)
	fill(&l.InFlight, d.InFlight)
	fill(&l.LineRate, d.LineRate)
	fill(&l.NoCNP, d.NoCNP)
	fill(&l.NoDCQCN, d.NoDCQCN)
	fill(&l.Window, d.Window)
	fill(&l.AckEvery, d.AckEvery)
	l.AckFloor = max(l.AckFloor, 0)
	l.InFlight = max(l.InFlight, 0)
	l.MaxQP = min(l.MaxQP, maxQPs)
	l.MaxSGE = min(l.MaxSGE, abi.MaxSGE)
	l.MaxSRQSGE = min(l.MaxSRQSGE, abi.MaxSGE)
	l.PKeyTableLen = min(l.PKeyTableLen, 1<<15) // partitions there are
	l.MaxInlineData = min(l.MaxInlineData, abi.MaxInlineLimit)
	l.MaxRDAtomic = min(l.MaxRDAtomic, 255)
	l.GIDTableLen = min(l.GIDTableLen, 256) // an index is 8 bits in an address vector
	return l
}

func fill[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Profile is how a device presents itself: limits and identity.
type Profile struct {
	Name         string
	Limits       Limits
	FWVer        string
	VendorID     uint32
	VendorPartID uint32
	HWVer        uint32
	GIDs         GIDShape
	PageSizeCap  uint64
	AckDelay     uint32 // local CA ACK delay, 4.096 us times 2 to the power of it
	MaxPKeys     uint32 // 0: as many as a port has
	PortCaps     uint32
	// ReclaimOnCompletion gives the slots of queue pairs back to the application when requests complete, as Linux rxe
	// does, and not when their completions are polled, as hardware does.
	ReclaimOnCompletion bool
}

// Softnic is the default profile. Its vendor is the unassigned OUI, which Linux rxe uses too.
func Softnic() Profile {
	return Profile{
		Name: "softnic", Limits: DefaultLimits(), FWVer: "0.0.0", VendorID: 0xffffff,
		PageSizeCap: 0xfffff000, AckDelay: 15, PortCaps: portCM,
	}
}

// fill completes a profile that was made by hand.
func (p Profile) fill() Profile {
	d := Softnic()
	fill(&p.PageSizeCap, d.PageSizeCap)
	fill(&p.AckDelay, d.AckDelay)
	fill(&p.PortCaps, d.PortCaps)
	return p
}

// Capabilities of a port.
const (
	portCM      = 0x10000   // connection management is supported
	portReinit  = 0x40000   // a link can be made anew
	portIPBased = 0x4000000 // GIDs are made of IP addresses
)
