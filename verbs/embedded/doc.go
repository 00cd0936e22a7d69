// Package embedded is a softnicd device in the process that uses it: no daemon, no socket, no set-up. It is the same
// device, with the same control sessions, shared rings and engines; only the socket between them is left out. Go tests of
// RDMA programs run on it.
//
//	var net embedded.Network                       // two devices on one wire, in memory
//	a, err := embedded.New(embedded.Options{Network: &net})
//	b, err := embedded.New(embedded.Options{Network: &net})
//	defer a.Close()
//	defer b.Close()
//	ctx, err := a.Open()                           // a *verbs.Context like any other
//
// A device without a network reaches itself, which is enough for two queue pairs of one program.
package embedded
