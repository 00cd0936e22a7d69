package ib

import "fmt"

// MTU is a path MTU code: payload bytes of a full packet, headers not counted. Values as ibv_mtu.
type MTU uint8

// The path MTUs there are.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the payload bytes of a full packet, 0 for a code that is none.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// Valid reports whether m is one of the five codes.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

func (m MTU) String() string {
	if !m.Valid() {
		return fmt.Sprintf("MTU(%d)", uint8(m))
	}
	return fmt.Sprint(m.Bytes())
}

// MTUOverhead is what a link must carry around a payload in the worst case: network header 40, UDP 8, BTH 12,
// XRCETH 4, AtomicETH 28, ICRC 4. Linux uses the same sum, so that both ends choose alike.
const MTUOverhead = 96

// MTUForLink returns the largest path MTU that fits a link of n bytes, MTU256 if none does.
func MTUForLink(n int) MTU {
	for m := MTU4096; m > MTU256; m-- {
		if m.Bytes()+MTUOverhead <= n {
			return m
		}
	}
	return MTU256
}
