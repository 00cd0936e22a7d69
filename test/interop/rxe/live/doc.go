// Package live has softnicd talk to Linux's rdma_rxe, in a virtual machine, over a bridge between a tap device and us.
//
// The machine is that of ../shared/interop beside the checkout, or of $SOFTNIC_INTEROP: a folder with programs build-vm,
// which makes an image of Debian's packages once, and vm, which boots it and runs commands in it. Without the folder,
// without root or with -short every test here skips; a folder that $SOFTNIC_INTEROP names has to be there. It boots in some
// seconds on an idle machine, under emulation, which is what makes the tests slow.
//
// Both sides of a test are a side: [ours] is a program of package verbs with a daemon beside the bridge, [theirs] is
// testdata/peer.py in the machine. Each operation runs with either of them asking, and all data is compared by checksum.
// Beside that rdma-core's examples and perftest run in the machine, and the same programs here, under softnicd exec.
//
//	go test ./test/interop/rxe/live               # some of each kind, what CI runs
//	make interop-rxe                              # everything
//	vm start a --netns rxevm --mtu 9000           # while working on it: a machine that stays
//	SOFTNIC_RXE_VM=a go test ./test/interop/rxe/live -run 'TestOperations/udp/v6'
package live
