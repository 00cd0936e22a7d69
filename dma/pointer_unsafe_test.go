package dma

import (
	"sync/atomic"
	"unsafe"
)

func address2pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func loadWord(w *uint64) uint64 { return atomic.LoadUint64(w) }
