// Package netdev tells what network interfaces the host has, and when that changes: what is under a device.
//
//	spec, err := netdev.ParseSpec("softnic0=eth0")
//	i, err := netdev.Resolve(spec.Target) // an interface with its MTU, MAC and addresses
//	events, err := netdev.Watch(ctx)
//	for e := range events { ... netdev.ByIndex(e.Index) ... }
//
// It looks at the network namespace of the calling thread and keeps nothing: an interface is its index, looked up again
// each time, since names change and interfaces go away.
package netdev
