// Package wire turns RoCEv2 datagrams into packets and back: the opcode table, headers, ICRC, and frames that name
// their payload by reference.
//
// On the way in, [Parse] judges the bytes behind a UDP header once. What it accepts is a [Packet], whose accessors are
// plain loads:
//
//	switch drop := wire.Parse(&p, &d); {
//	case drop != wire.Accepted:
//		counters.Dropped[drop].Add(1)
//	case p.Opcode.IsWrite():
//		if reth := wire.FindRETH(p.Header); reth != nil { ... reth.VA(), reth.RKey() ... }
//	}
//
// On the way out, an engine takes a [Frame] from a [Burst], writes its headers in place and adds its payload by
// reference; a port makes bytes of it with [Frame.AppendTo], or gathers header and pieces itself and seals them with a
// [Checksum]:
//
//	h := f.SetHeader(wire.RCWriteOnly)
//	f.BTH().SetPSN(psn)
//	wire.FindRETH(h).SetVA(va)
//	f.Add(mr, off, n)
//
// Headers are views: [BTH], [RETH] and the rest are sized arrays, and (*BTH)(b) is the header at b. They are also layers
// of gopacket ([BTHLayer], [ExtensionLayer]), registered for UDP port 4791, for captures and tests.
//
// opcode.go and optable.go say what the opcodes are, bth.go and extension.go what the headers look like, syndrome.go
// what an acknowledgement means, icrc.go and ipid.go how a packet is sealed.
package wire
