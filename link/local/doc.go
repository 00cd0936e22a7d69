// Package local is the port by which a device reaches itself: frames between two queue pairs of one device never become
// datagrams. The receiver is handed the very references that the sender made, and copies once, from source to
// destination. It is a port like others, so faults, captures and counters see this traffic too.
//
// [Mux] puts it beside the port to the outside:
//
//	port := local.Mux(local.New(1024), sockets, func(g ib.GID) bool { return table.Has(g) })
//
// A local port has no descriptor to wait for. Whoever has sent receives once more before going to sleep.
package local
