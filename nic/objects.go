package nic

// Objects are what applications have on a device at one moment.
type Objects struct {
	Contexts, PDs, QPs, CQs, SRQs, MRs, MWs uint64
	Memory                                  uint64 // bytes that are mapped for them
}

// objectNames are the counters that say how many objects there are now: unlike the others they go down too.
var objectNames = [numResources]string{
	resContexts: "objects_context",
	resPDs:      "objects_pd",
	resQPs:      "objects_qp",
	resCQs:      "objects_cq",
	resSRQs:     "objects_srq",
	resMRs:      "objects_mr",
	resMWs:      "objects_mw",
	resMemory:   "objects_memory_bytes",
}

// Objects counts what there is. No shard notices.
func (d *Device) Objects() Objects {
	n := d.ledger.inUse()
	return Objects{
		Contexts: n[resContexts], PDs: n[resPDs], QPs: n[resQPs], CQs: n[resCQs], SRQs: n[resSRQs], MRs: n[resMRs],
		MWs: n[resMWs], Memory: n[resMemory],
	}
}

// GIDs returns how many entries of the GID table are filled.
func (d *Device) GIDs() (n int) {
	for _, e := range d.gids.Load().entries {
		if !e.gid.IsZero() {
			n++
		}
	}
	return n
}

// Traffic is what a device's port has carried.
type Traffic struct {
	SentPackets, SentBytes, ReceivedPackets, ReceivedBytes uint64
}

// Traffic returns what the port has carried since the device was made. No shard notices.
func (d *Device) Traffic() Traffic {
	p := d.portCounters()
	return Traffic{p.SentPackets.Load(), p.SentBytes.Load(), p.ReceivedPackets.Load(), p.ReceivedBytes.Load()}
}

// inUse returns what all tenants have together.
func (g *ledger) inUse() [numResources]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}
