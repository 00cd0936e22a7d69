package ib

import (
	"fmt"
	"strings"
)

// The String methods of this package print values as the ecosystem's tools do, without the IBV_ prefixes. Where C has
// both a constant and a text for a value, Name returns the constant and String the text. A value without a name prints
// as its type and number.

// unsigned are the types of enumerations and flags.
type unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

// number prints a value that has no name: "WCStatus(99)".
func number[T unsigned](typ string, v T) string { return fmt.Sprintf("%s(%d)", typ, uint64(v)) }

// bitName is a flag and its name.
type bitName[T unsigned] struct {
	bit  T
	name string
}

// join prints flags: names joined by "|", bits without a name as one hexadecimal number at the end, nothing as "0".
func join[T unsigned](v T, names []bitName[T]) string {
	if v == 0 {
		return "0"
	}
	var parts []string
	for _, n := range names {
		if v&n.bit != 0 {
			parts = append(parts, n.name)
			v &^= n.bit
		}
	}
	if v != 0 {
		parts = append(parts, fmt.Sprintf("%#x", uint64(v)))
	}
	return strings.Join(parts, "|")
}
