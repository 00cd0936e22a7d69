// Package abi is everything that an application and the daemon share: the layouts of work queue entries and completion
// queue entries, rings and doorbells, the page the daemon publishes, and the messages of the control socket. Package
// verbs and the C libraries stand on one side of it, package nic and control on the other.
//
// All of it is little-endian and fixed: offset tables in comments, assertions beside them that fail the build, and a C
// header generated from the same definitions (include/softnicd_abi.h, kept in step by a test).
//
// Rings are hostile ground. Each side keeps its own index privately and publishes a copy; the peer's index is a claim to
// check. An entry is copied once and the copy judged.
//
//	l := abi.LayoutOf(abi.RoundQPCap(cap))
//	b, err := abi.NewQPBlock(memory, l)     // either side
//
//	b.PutSend(posted, &wqe, sges)           // application; then posted++
//	b.PublishSend(posted)
//	bell.Ring(slot)
//
//	if b.SendPosted()-taken > l.SendDepth { // daemon: a claim, checked
//		...
//	}
//	n := b.CopySend(taken, &wqe, sges, inline)
//
// The pieces: [QPBlock] and [CQBlock] are the rings, [Doorbell] says where to look, [DevicePage] what the daemon does.
// Folder ctl has the messages, folder gen the generator of the header.
package abi

// Version is the layout's version. The daemon refuses a client of another one with EPROTONOSUPPORT and a sentence.
const Version = 2

// CacheLine separates words that different sides write.
const CacheLine = 64
