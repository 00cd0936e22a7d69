package control

import "unsafe"

// address is where memory lies, as an application would say.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
