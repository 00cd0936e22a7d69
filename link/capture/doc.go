// Package capture writes what passes a port to a pcapng file, traffic of a device with itself included: Ethernet frames
// with right ICRCs, which Wireshark and tshark dissect as InfiniBand.
//
//	file, err := capture.New(w, capture.Config{})
//	port := file.Wrap("softnic0", port, isLocal)
//	...
//	err = file.Close() // an *IncompleteError if packets were dropped
//
// Capturing never holds a shard up: packets go to a bounded queue, from which a goroutine of the file's own writes; what
// finds the queue full is dropped and counted. Each packet carries a comment that names the local queue pair.
//
// Frames are shown as the port was given them. The MAC addresses are made up, and the UDP source port is the path's,
// which a socket port replaces by one of its own.
//
// [Read] gives the packets of such a file back, with their comments.
package capture
