package wire

// opcodeInfo is what the table knows about an opcode. The zero value is that of an undefined one but for headerLen.
type opcodeInfo struct {
	name      string
	headers   HeaderSet
	headerLen uint8
	base      uint8 // offset of what follows BTH and XRCETH
	valid     bool
	role      role
	place     place
	class     class
	payload   PayloadRule
}

type (
	role  uint8
	place uint8
	class uint8
)

const (
	request role = iota + 1
	response
)

const (
	first place = iota + 1
	middle
	last
	only
)

const (
	send class = iota + 1
	write
	read
	readResponse
	acknowledge
	atomic
	other
)

// services is a set of transport services.
type services uint8

const (
	rc  services = 1 << ServiceRC
	uc  services = 1 << ServiceUC
	ud  services = 1 << ServiceUD
	cnp services = 1 << ServiceCNP
	xrc services = 1 << ServiceXRC

	reliable  = rc | xrc
	connected = rc | uc | xrc
	all       = rc | uc | ud | xrc
)

// operations is the table of IBA 9.2.1 with annexes A14 (XRC), A17 (CNP) and A19 (FLUSH, ATOMIC WRITE): the lower five
// bits of an opcode, and the services that know the operation. UD adds a DETH, XRC requests an XRCETH.
var operations = [...]struct {
	code    uint8
	name    string
	in      services
	role    role
	class   class
	place   place
	headers HeaderSet
	payload PayloadRule
}{
	{0x00, "SEND_FIRST", connected, request, send, first, 0, PayloadFull},
	{0x01, "SEND_MIDDLE", connected, request, send, middle, 0, PayloadFull},
	{0x02, "SEND_LAST", connected, request, send, last, 0, PayloadSome},
	{0x03, "SEND_LAST_WITH_IMMEDIATE", connected, request, send, last, HasImm, PayloadSome},
	{0x04, "SEND_ONLY", all, request, send, only, 0, PayloadAny},
	{0x05, "SEND_ONLY_WITH_IMMEDIATE", all, request, send, only, HasImm, PayloadAny},
	{0x06, "RDMA_WRITE_FIRST", connected, request, write, first, HasRETH, PayloadFull},
	{0x07, "RDMA_WRITE_MIDDLE", connected, request, write, middle, 0, PayloadFull},
	{0x08, "RDMA_WRITE_LAST", connected, request, write, last, 0, PayloadSome},
	{0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", connected, request, write, last, HasImm, PayloadSome},
	{0x0a, "RDMA_WRITE_ONLY", connected, request, write, only, HasRETH, PayloadAny},
	{0x0b, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", connected, request, write, only, HasRETH | HasImm, PayloadAny},
	{0x0c, "RDMA_READ_REQUEST", reliable, request, read, only, HasRETH, PayloadNone},
	{0x0d, "RDMA_READ_RESPONSE_FIRST", reliable, response, readResponse, first, HasAETH, PayloadFull},
	{0x0e, "RDMA_READ_RESPONSE_MIDDLE", reliable, response, readResponse, middle, 0, PayloadFull},
	{0x0f, "RDMA_READ_RESPONSE_LAST", reliable, response, readResponse, last, HasAETH, PayloadSome},
	{0x10, "RDMA_READ_RESPONSE_ONLY", reliable, response, readResponse, only, HasAETH, PayloadAny},
	{0x11, "ACKNOWLEDGE", reliable, response, acknowledge, only, HasAETH, PayloadNone},
	{0x12, "ATOMIC_ACKNOWLEDGE", reliable, response, acknowledge, only, HasAETH | HasAtomicAckETH, PayloadNone},
	{0x13, "COMPARE_SWAP", reliable, request, atomic, only, HasAtomicETH, PayloadNone},
	{0x14, "FETCH_ADD", reliable, request, atomic, only, HasAtomicETH, PayloadNone},
	{0x16, "SEND_LAST_WITH_INVALIDATE", reliable, request, send, last, HasIETH, PayloadSome},
	{0x17, "SEND_ONLY_WITH_INVALIDATE", reliable, request, send, only, HasIETH, PayloadAny},
	{0x1c, "FLUSH", reliable, request, other, only, HasFETH | HasRETH, PayloadNone},
	{0x1d, "ATOMIC_WRITE", reliable, request, other, only, HasRETH, PayloadEight},
	{0x01, "CNP", cnp, 0, other, only, 0, PayloadSixteen},
}

// opcodes has an entry for every value of a byte, so that no index can be out of range.
var opcodes = makeOpcodes()

func makeOpcodes() (t [256]opcodeInfo) {
	for i := range t {
		t[i].headerLen, t[i].base = BTHSize, BTHSize
	}
	for _, op := range operations {
		for s := ServiceRC; s <= ServiceXRC; s++ {
			if op.in&(1<<s) == 0 {
				continue
			}
			e := &t[uint8(s)<<5|op.code]
			*e = opcodeInfo{
				name: s.String() + "_" + op.name, headers: op.headers, base: BTHSize, valid: true,
				role: op.role, place: op.place, class: op.class, payload: op.payload,
			}
			switch {
			case s == ServiceCNP:
				e.name = op.name
			case s == ServiceUD:
				e.headers |= HasDETH
			case s == ServiceXRC && op.role == request:
				e.headers |= HasXRCETH
				e.base += XRCETHSize
			}
			e.headerLen = uint8(BTHSize + e.headers.Len())
		}
	}
	return t
}
