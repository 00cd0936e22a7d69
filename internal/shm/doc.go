// Package shm is what processes of one host share and hand each other: sealed memory, descriptors, words that the kernel
// marks when a process dies, and the memory of another process.
//
// Everything that comes from outside is hostile until judged. [Map] maps only memory that its giver can no longer shrink,
// [RecvMsg] closes what it was not asked for, and a [Closer] lets go of descriptors whose close may block.
//
//	fd, err := shm.Create("softnic-arena", size) // the application
//	err = shm.SendMsg(sock, request, fd)
//
//	n, err := shm.RecvMsg(sock, buf, fds[:])     // the daemon
//	mem, err := shm.Map(fds[0], size)
package shm
