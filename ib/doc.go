// Package ib is the vocabulary of the InfiniBand transport as RoCEv2 carries it: sequence numbers, queue pair
// numbers, keys, GIDs, states, work requests, completions and their status codes.
//
// Every quantity has a type of its own, so that the compiler checks the arithmetic: a [PSN] is ordered in a
// 24-bit space, an [LKey] is not an [RKey], a [QPState] prints as the specification spells it. Numeric values are
// those of libibverbs' public header, so that a value means the same here, in a C program and in a log.
//
//	next := ib.NewPSN(0xffffff).Next()   // 0: sequence numbers wrap
//	next.After(0xffffff)                 // true
//	ib.WCRetryExcErr.String()            // "transport retry counter exceeded"
//
// The package imports nothing of softnicd.
package ib
