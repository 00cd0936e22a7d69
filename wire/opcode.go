package wire

import "fmt"

// Opcode is the first byte of the BTH: three bits of [Service], five of operation (IBA 9.2.1).
type Opcode uint8

// Service is the transport service that an opcode belongs to: its upper three bits.
type Service uint8

// Transport services. Nobody speaks RD; the CNP group has one opcode.
const (
	ServiceRC Service = iota
	ServiceUC
	ServiceRD
	ServiceUD
	ServiceCNP
	ServiceXRC
)

func (s Service) String() string {
	if int(s) < len(serviceNames) {
		return serviceNames[s]
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

var serviceNames = [...]string{"RC", "UC", "RD", "UD", "CNP", "XRC"}

// Opcodes of the reliable connection.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImm       Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAcknowledge        Opcode = 0x11
	RCAtomicAcknowledge  Opcode = 0x12
	RCCompareSwap        Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
	RCFlush              Opcode = 0x1c
	RCAtomicWrite        Opcode = 0x1d
)

// Opcodes of the unreliable connection.
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2a
	UCWriteOnlyImm Opcode = 0x2b
)

// Opcodes of the unreliable datagram.
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
)

// CNP is the congestion notification packet (IBA A17.9.3).
const CNP Opcode = 0x81

// Opcodes of the extended reliable connection. Requests carry an XRCETH, responses look as those of RC.
const (
	XRCSendFirst          Opcode = 0xa0
	XRCSendMiddle         Opcode = 0xa1
	XRCSendLast           Opcode = 0xa2
	XRCSendLastImm        Opcode = 0xa3
	XRCSendOnly           Opcode = 0xa4
	XRCSendOnlyImm        Opcode = 0xa5
	XRCWriteFirst         Opcode = 0xa6
	XRCWriteMiddle        Opcode = 0xa7
	XRCWriteLast          Opcode = 0xa8
	XRCWriteLastImm       Opcode = 0xa9
	XRCWriteOnly          Opcode = 0xaa
	XRCWriteOnlyImm       Opcode = 0xab
	XRCReadRequest        Opcode = 0xac
	XRCReadResponseFirst  Opcode = 0xad
	XRCReadResponseMiddle Opcode = 0xae
	XRCReadResponseLast   Opcode = 0xaf
	XRCReadResponseOnly   Opcode = 0xb0
	XRCAcknowledge        Opcode = 0xb1
	XRCAtomicAcknowledge  Opcode = 0xb2
	XRCCompareSwap        Opcode = 0xb3
	XRCFetchAdd           Opcode = 0xb4
	XRCSendLastInv        Opcode = 0xb6
	XRCSendOnlyInv        Opcode = 0xb7
	XRCFlush              Opcode = 0xbc
	XRCAtomicWrite        Opcode = 0xbd
)

// Valid reports whether o is defined. Everything below answers for undefined opcodes too: no headers but the BTH, no
// role, no payload.
func (o Opcode) Valid() bool { return opcodes[o].valid }

// Service returns the transport service, which has to match that of the queue pair.
func (o Opcode) Service() Service { return Service(o >> 5) }

// Headers returns the set of extension headers that follow the BTH.
func (o Opcode) Headers() HeaderSet { return opcodes[o].headers }

// HeaderLen returns the bytes of BTH and extension headers.
func (o Opcode) HeaderLen() int { return int(opcodes[o].headerLen) }

// Payload returns the rule for the length of the payload.
func (o Opcode) Payload() PayloadRule { return opcodes[o].payload }

// IsRequest reports whether a requester sends o.
func (o Opcode) IsRequest() bool { return opcodes[o].role == roleRequest }

// IsResponse reports whether a responder sends o. A CNP is neither request nor response.
func (o Opcode) IsResponse() bool { return opcodes[o].role == roleResponse }

// IsFirst reports whether o begins a message of several packets.
func (o Opcode) IsFirst() bool { return opcodes[o].place == placeFirst }

// IsMiddle reports whether o is neither the first nor the last packet of its message.
func (o Opcode) IsMiddle() bool { return opcodes[o].place == placeMiddle }

// IsLast reports whether o ends a message of several packets.
func (o Opcode) IsLast() bool { return opcodes[o].place == placeLast }

// IsOnly reports whether o is a message of one packet: READ requests, atomics and acknowledgements among them.
func (o Opcode) IsOnly() bool { return opcodes[o].place == placeOnly }

// Ends reports whether a message is complete with o: LAST or ONLY.
func (o Opcode) Ends() bool { return opcodes[o].place == placeLast || opcodes[o].place == placeOnly }

// IsSend reports whether o belongs to a SEND of any kind.
func (o Opcode) IsSend() bool { return opcodes[o].class == classSend }

// IsWrite reports whether o belongs to an RDMA WRITE. ATOMIC WRITE does not count.
func (o Opcode) IsWrite() bool { return opcodes[o].class == classWrite }

// IsRead reports whether o is an RDMA READ request.
func (o Opcode) IsRead() bool { return opcodes[o].class == classRead }

// IsReadResponse reports whether o is one of the four READ responses.
func (o Opcode) IsReadResponse() bool { return opcodes[o].class == classReadResponse }

// IsAtomic reports whether o is a COMPARE SWAP or FETCH ADD request.
func (o Opcode) IsAtomic() bool { return opcodes[o].class == classAtomic }

// String returns the specification's name: RC_SEND_ONLY_WITH_IMMEDIATE.
func (o Opcode) String() string {
	if n := opcodes[o].name; n != "" {
		return n
	}
	return fmt.Sprintf("Opcode(%#02x)", uint8(o))
}

// PayloadRule says how many bytes of payload an opcode may carry (IBA 9.6, 9.7.4.1.5).
type PayloadRule uint8

// Rules for the payload.
const (
	PayloadNone    PayloadRule = iota // no payload
	PayloadFull                       // exactly the path MTU, hence no pad
	PayloadSome                       // 1 byte to the path MTU
	PayloadAny                        // 0 bytes to the path MTU
	PayloadEight                      // the operand of an ATOMIC WRITE
	PayloadSixteen                    // the reserved bytes of a CNP
)

// Min returns the fewest bytes of payload with a path MTU of pmtu bytes.
func (r PayloadRule) Min(pmtu int) int {
	switch r {
	case PayloadFull:
		return pmtu
	case PayloadSome:
		return 1
	}
	return r.fixed()
}

// Max returns the most bytes of payload with a path MTU of pmtu bytes.
func (r PayloadRule) Max(pmtu int) int {
	switch r {
	case PayloadFull, PayloadSome, PayloadAny:
		return pmtu
	}
	return r.fixed()
}

// Fits reports whether n bytes of payload obey the rule.
func (r PayloadRule) Fits(n, pmtu int) bool { return n >= r.Min(pmtu) && n <= r.Max(pmtu) }

func (r PayloadRule) fixed() int {
	switch r {
	case PayloadEight:
		return 8
	case PayloadSixteen:
		return 16
	}
	return 0
}
