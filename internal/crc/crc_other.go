//go:build !amd64

package crc

const wide = false

func update(uint32, *byte, int) uint32 { panic("not on this processor") }
