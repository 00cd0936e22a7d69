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
	roleRequest role = iota + 1
	roleResponse
)

const (
	placeFirst place = iota + 1
	placeMiddle
	placeLast
	placeOnly
)

const (
	classSend class = iota + 1
	classWrite
	classRead
	classReadResponse
	classAcknowledge
	classAtomic
	classOther
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
	{0x00, "SEND_FIRST", connected, roleRequest, classSend, placeFirst, 0, PayloadFull},
	{0x01, "SEND_MIDDLE", connected, roleRequest, classSend, placeMiddle, 0, PayloadFull},
	{0x02, "SEND_LAST", connected, roleRequest, classSend, placeLast, 0, PayloadSome},
	{0x03, "SEND_LAST_WITH_IMMEDIATE", connected, roleRequest, classSend, placeLast, HasImm, PayloadSome},
	{0x04, "SEND_ONLY", all, roleRequest, classSend, placeOnly, 0, PayloadAny},
	{0x05, "SEND_ONLY_WITH_IMMEDIATE", all, roleRequest, classSend, placeOnly, HasImm, PayloadAny},
	{0x06, "RDMA_WRITE_FIRST", connected, roleRequest, classWrite, placeFirst, HasRETH, PayloadFull},
	{0x07, "RDMA_WRITE_MIDDLE", connected, roleRequest, classWrite, placeMiddle, 0, PayloadFull},
	{0x08, "RDMA_WRITE_LAST", connected, roleRequest, classWrite, placeLast, 0, PayloadSome},
	{0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", connected, roleRequest, classWrite, placeLast, HasImm, PayloadSome},
	{0x0a, "RDMA_WRITE_ONLY", connected, roleRequest, classWrite, placeOnly, HasRETH, PayloadAny},
	{0x0b, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", connected, roleRequest, classWrite, placeOnly, HasRETH | HasImm, PayloadAny},
	{0x0c, "RDMA_READ_REQUEST", reliable, roleRequest, classRead, placeOnly, HasRETH, PayloadNone},
	{0x0d, "RDMA_READ_RESPONSE_FIRST", reliable, roleResponse, classReadResponse, placeFirst, HasAETH, PayloadFull},
	{0x0e, "RDMA_READ_RESPONSE_MIDDLE", reliable, roleResponse, classReadResponse, placeMiddle, 0, PayloadFull},
	{0x0f, "RDMA_READ_RESPONSE_LAST", reliable, roleResponse, classReadResponse, placeLast, HasAETH, PayloadSome},
	{0x10, "RDMA_READ_RESPONSE_ONLY", reliable, roleResponse, classReadResponse, placeOnly, HasAETH, PayloadAny},
	{0x11, "ACKNOWLEDGE", reliable, roleResponse, classAcknowledge, placeOnly, HasAETH, PayloadNone},
	{0x12, "ATOMIC_ACKNOWLEDGE", reliable, roleResponse, classAcknowledge, placeOnly, HasAETH | HasAtomicAckETH, PayloadNone},
	{0x13, "COMPARE_SWAP", reliable, roleRequest, classAtomic, placeOnly, HasAtomicETH, PayloadNone},
	{0x14, "FETCH_ADD", reliable, roleRequest, classAtomic, placeOnly, HasAtomicETH, PayloadNone},
	{0x16, "SEND_LAST_WITH_INVALIDATE", reliable, roleRequest, classSend, placeLast, HasIETH, PayloadSome},
	{0x17, "SEND_ONLY_WITH_INVALIDATE", reliable, roleRequest, classSend, placeOnly, HasIETH, PayloadAny},
	{0x1c, "FLUSH", reliable, roleRequest, classOther, placeOnly, HasFETH | HasRETH, PayloadNone},
	{0x1d, "ATOMIC_WRITE", reliable, roleRequest, classOther, placeOnly, HasRETH, PayloadEight},
	{0x01, "CNP", cnp, 0, classOther, placeOnly, 0, PayloadSixteen},
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
			case s == ServiceXRC && op.role == roleRequest:
				e.headers |= HasXRCETH
				e.base += XRCETHSize
			}
			e.headerLen = uint8(BTHSize + e.headers.Len())
		}
	}
	return t
}
