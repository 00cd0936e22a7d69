package raw

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into an Ethernet frame whose tag, if it had one, was taken off.
const (
	offType     = 12
	offIP       = 14
	offFragment = offIP + 6
	offProto4   = offIP + 9
	offDest4    = offIP + 16
	offPort4    = offIP + 20 + 2
	offNext6    = offIP + 6
	offDest6    = offIP + 24
	offPort6    = offIP + 40 + 2

	wholeFrame = 1 << 18
)

// forUs refuses what is not for this host: frames to others that a promiscuous interface sees, our own ones on their way
// out, and those of a VLAN, which come once more by the interface that the VLAN has. A tag without VLAN, for its priority
// alone, is all right.
func forUs() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: unix.PACKET_OTHERHOST, SkipTrue: 1}, // HOST, BROADCAST, MULTICAST
		bpf.RetConstant{Val: 0},
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		bpf.LoadExtension{Num: bpf.ExtVLANTag},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xfff},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// datagrams accepts datagrams to the port at one of the addresses, and nothing else. Of IPv4 it takes no options, which no
// sender of RoCEv2 uses. The first fragment of a datagram passes, to be counted as what it is; others have no UDP header.
func datagrams(addrs []netip.Addr, port uint16) []bpf.Instruction {
	var v4, v6 []bpf.Instruction
	accept := bpf.RetConstant{Val: wholeFrame}
	for _, a := range addrs {
		if a.Is4() {
			b := a.As4()
			v4 = append(v4, bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(b[:]), SkipFalse: 1}, accept)
			continue
		}
		b := a.As16()
		for i := range 4 {
			// Behind this pair there are those of the words left, and the end.
			v6 = append(v6, bpf.LoadAbsolute{Off: uint32(offDest6 + 4*i), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(b[4*i:]), SkipFalse: uint8(2*(3-i) + 1)})
		}
		v6 = append(v6, accept)
	}
	refuse := bpf.RetConstant{Val: 0}
	is := func(off, size, value uint32) []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: off, Size: int(size)}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1}, refuse,
		}
	}
	var four []bpf.Instruction
	four = append(four, is(offIP, 1, 0x45)...)
	four = append(four, is(offProto4, 1, unix.IPPROTO_UDP)...)
	four = append(four, bpf.LoadAbsolute{Off: offFragment, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x1fff, SkipTrue: 1}, refuse)
	four = append(four, is(offPort4, 2, uint32(port))...)
	four = append(four, bpf.LoadAbsolute{Off: offDest4, Size: 4})
	four = append(append(four, v4...), refuse)

	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 1},
		bpf.Jump{Skip: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipFalse: 1},
		bpf.Jump{Skip: uint32(len(four)) + 1},
		refuse,
	}
	program = append(program, four...)
	program = append(program, is(offNext6, 1, unix.IPPROTO_UDP)...)
	program = append(program, is(offPort6, 2, uint32(port))...)
	return append(append(program, v6...), refuse)
}
