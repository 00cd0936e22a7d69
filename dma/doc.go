// Package dma is memory under protection: protection domains, memory regions and windows, the key table that finds them,
// and the engine that copies between them.
//
// A request names memory by key and address. [Table.Local] and [Table.Remote] judge the name (key, domain, rights,
// bounds without sums that can wrap) and return a [Span]; [CopyPayload] moves bytes to it, and says whose address faulted if
// one does. [Table.Gather] and [Table.Scatter] do both for a scatter/gather list, by offset in the message. Nothing here
// allocates on that path, the binding and invalidating of windows ([Table.Bind], [Table.Invalidate]) included.
//
//	span, v := table.Remote(pd, qpn, rkey, va, n, ib.AccessRemoteWrite)
//	if v != dma.OK { ... }           // the NAK or status follows from v
//	err := dma.CopyPayload(span, 0, pkt.Payload)
package dma
