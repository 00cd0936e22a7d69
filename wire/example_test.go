package wire_test

import (
	"fmt"
	"net/netip"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// A WRITE is made by reference, sealed, and judged at the other end.
func Example() {
	path := &wire.Path{
		Source:     ib.GIDFromAddr(netip.MustParseAddr("127.0.0.1")),
		Dest:       ib.GIDFromAddr(netip.MustParseAddr("127.0.0.2")),
		SourcePort: 0xc000,
	}
	burst := wire.NewBurst(16)

	f := burst.Next()
	f.Path = path
	header := f.SetHeader(wire.RCWriteOnly)
	f.BTH().SetDestQP(0x11)
	f.BTH().SetPSN(7)
	wire.FindRETH(header).SetVA(0x1000)
	wire.FindRETH(header).SetLength(5)
	f.Add(&wire.Buffer{B: []byte("hello")}, 0, 5)
	udp, err := f.AppendTo(nil, 0)
	if err != nil {
		fmt.Println(err)
		return
	}

	var p wire.Packet
	d := wire.Datagram{Bytes: udp, Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort}
	fmt.Println(wire.Parse(&p, &d), p.Opcode, p.PSN(), p.Len, wire.FindRETH(p.Header).Length())

	udp[20] ^= 1
	fmt.Println(wire.Parse(&p, &d))
	// Output:
	// accepted RC_RDMA_WRITE_ONLY 0x000007 5 5
	// ICRC
}
