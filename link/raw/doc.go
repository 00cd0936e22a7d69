// Package raw is a network port on packet sockets: whole Ethernet frames, headers and all, as a NIC makes and reads them. It
// needs CAP_NET_RAW.
//
//	port, err := raw.Open(raw.Config{Interface: index, Addrs: addrs})
//	if errors.Is(err, syscall.EPERM) { ... } // no CAP_NET_RAW
//	sent, err := port.Send(now, burst.Frames())
//	n := port.Recv(now, packets)
//
// What it has over link/udp: it reads the IPv4 identification, so the ICRC of foreign senders is checked in all its 32 bits;
// it chooses the UDP source port, the IPv6 flow label and, on a VLAN interface, the priority (PCP, from the service level);
// and a firewall of the host does not stand between. Frames of one path and one length leave as a group that the kernel
// splits (PACKET_VNET_HDR); groups that arrive whole are split here.
//
// Nor does the kernel look up routes and neighbours for it. A goroutine asks netlink, and the first frames to a destination
// wait for the answer; those to one that is not there count as lost. On a VLAN interface frames leave by the interface below with
// the tag in them; what comes in has lost its tag on the way, so it is received on the VLAN interface itself, where no
// priority is seen any more. That of frames with a tag for the priority alone (VLAN 0) is the packet's SL.
//
// A UDP socket is bound to port 4791 of each address, so that nobody else takes it, and so that the kernel answers no packet
// with "port unreachable"; it receives nothing.
//
// What it does not do: speak to interfaces that are not Ethernet, and hear what other devices of this host send to a
// multicast group by the same interface. Over the loopback interface the kernel takes what it sends to IPv4 addresses of
// the host for forged, so link/udp does not hear it there; between hosts, and in the other direction, both understand each
// other.
//
// Files: port.go is the port and its addresses, socket.go and filter.go how sockets are made, group.go multicast; send.go the way out,
// neighbour.go where to, as the data path knows it, route.go as netlink tells it, and hold.go
// what waits for that; recv.go the way in, and header.go what
// is in front of a datagram.
package raw
