// Package batch is what ports on sockets have in common: many frames on their way out, and many datagrams on their way in,
// with one system call.
//
// An [Outbox] puts frames of one path together, each by reference or as a copy with its ICRC behind, and sends the groups
// by sendmmsg; an [Inbox] receives from several sockets by recvmmsg, and makes packets of what came, which the kernel may
// have merged. What is in front of a frame, and how a message is addressed, is the port's own business: it is an [Addresser].
//
//	o.Reset()
//	n, fault := o.Group(frames, path, 0, port)
//	done, err := o.Flush(now, fd, frames[:n], port)
//
// Files: outbox.go groups and their sending, stage.go the memory they are put together in, loss.go what the network
// refuses; inbox.go the way in, hold.go what stays in the kernel after it was read, split.go how packets are made of it;
// socket.go options of sockets, cmsg.go control messages, mmsg_unsafe.go the kernel's structures.
package batch
