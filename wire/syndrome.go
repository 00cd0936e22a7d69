package wire

import (
	"fmt"

	"github.com/softnic/softnicd/ib"
)

// Syndrome is the first byte of an AETH: ACK with a credit code, RNR NAK with a timer code, or NAK with a reason
// (IBA 9.7.5.2).
type Syndrome uint8

// Syndromes without a code of their own. NAK code 4 belongs to RD alone.
const (
	// AckSyndrome is an ACK that gives no credit information, so that the requester is not limited.
	AckSyndrome        Syndrome = 0x1f
	NakSequence        Syndrome = 0x60
	NakInvalidRequest  Syndrome = 0x61
	NakRemoteAccess    Syndrome = 0x62
	NakRemoteOperation Syndrome = 0x63
)

// RNRNak returns the RNR NAK with a timer code, 0 to 31.
func RNRNak(code uint8) Syndrome { return Syndrome(0x20 | code&31) }

// IsAck reports whether the request was executed.
func (s Syndrome) IsAck() bool { return s>>5 == 0 }

// IsRNR reports whether the receiver was not ready: no receive request was posted.
func (s Syndrome) IsRNR() bool { return s>>5 == 1 }

// IsNak reports whether the request was refused with one of the four codes that exist for RC. RNR NAKs are not meant.
func (s Syndrome) IsNak() bool { return s >= NakSequence && s <= NakRemoteOperation }

// IsReserved reports whether s means nothing; RD's NAK code 4 is among those.
func (s Syndrome) IsReserved() bool { return !s.IsAck() && !s.IsRNR() && !s.IsNak() }

// RNRCode returns the timer code of an RNR NAK; see ib.RNRTimer.
func (s Syndrome) RNRCode() uint8 { return uint8(s) & 31 }

// Credits returns how many messages beyond the MSN the responder has receives for, and false if s gives no credit
// information: it is not an ACK, or its code is 31.
func (s Syndrome) Credits() (n uint32, limited bool) {
	if s >= AckSyndrome {
		return 0, false
	}
	return creditCodes[s], true
}

// String says what s means: "ACK", "ACK credits 16", "RNR NAK 1.28ms", "NAK remote access error".
func (s Syndrome) String() string {
	switch {
	case s == AckSyndrome:
		return "ACK"
	case s.IsAck():
		return fmt.Sprintf("ACK credits %d", creditCodes[s])
	case s.IsRNR():
		return "RNR NAK " + ib.RNRTimer(s.RNRCode()).String()
	}
	switch s {
	case NakSequence:
		return "NAK sequence error"
	case NakInvalidRequest:
		return "NAK invalid request"
	case NakRemoteAccess:
		return "NAK remote access error"
	case NakRemoteOperation:
		return "NAK remote operational error"
	}
	return fmt.Sprintf("Syndrome(%#02x)", uint8(s))
}

// creditCodes is the table of IBA 9.7.7.2.
var creditCodes = [31]uint32{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
}
