// Package udp is a network port on ordinary UDP sockets: RoCEv2 without privilege, from any container.
//
// A [Port] has one receiving socket for each address of its device, bound to UDP port 4791 exclusively, and a few sending
// sockets for each address family, since one socket cannot vary its source port, by which switches spread flows.
//
//	port, err := udp.Open(udp.Config{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
//	if errors.Is(err, syscall.EADDRINUSE) { ... } // another softnicd, or rdma_rxe
//	sent, err := port.Send(now, burst.Frames())
//	n := port.Recv(now, packets)
//
// Frames of one path and one length leave as a group that the kernel splits (UDP_SEGMENT), and arrive merged (UDP_GRO):
// a system call moves hundreds of kilobytes. Where the kernel lacks either, the port goes on without.
//
// Multicast groups have sockets of their own, by which the kernel is a member (group.go).
//
// A device of several shards has as many ports, [Shards], whose sockets share its addresses; the kernel steers by the queue
// pair number in a datagram (shards.go). Groups are the first one's.
//
// What it does not do: the kernel chooses the IPv6 flow label, which the ICRC does not cover. The IPv4
// identification of what is received is not to be seen through a socket: the ICRC of senders that use others than ours is
// checked in 16 of its bits, see wire.Parse.
//
// Files: port.go is the port and its addresses, socket.go how sockets are made; send.go what leaves in one system call,
// address.go where to; recv.go the way in. How frames become groups, and what happens when the kernel refuses one, is in
// link/internal/batch.
package udp
