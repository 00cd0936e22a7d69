package nic

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Who may speak to a queue pair, question by question.
func TestJudge(t *testing.T) {
	_, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	s := a.dev.shards[0]

	type change struct {
		op          wire.Opcode
		dest        ib.QPN
		pkey        ib.PKey
		source, dst string
		state       ib.QPState
		local       bool
	}
	right := change{op: wire.RCSendOnly, dest: x.qp.QPN(), pkey: ib.DefaultPKey, source: "10.0.0.2", dst: "10.0.0.1", state: ib.StateRTS}
	for name, tt := range map[string]struct {
		edit func(c *change)
		want refusal
	}{
		"right":                     {func(*change) {}, accepted},
		"response in RTS":           {func(c *change) { c.op = wire.RCAcknowledge }, accepted},
		"limited member":            {func(c *change) { c.pkey = 0x7fff }, accepted},
		"request in RTR":            {func(c *change) { c.state = ib.StateRTR }, accepted},
		"response in SQD":           {func(c *change) { c.op, c.state = wire.RCAcknowledge, ib.StateSQD }, accepted},
		"own source from outside":   {func(c *change) { c.source = "10.0.0.1" }, refusedOwnSource},
		"own source from inside":    {func(c *change) { c.source, c.local = "10.0.0.1", true }, refusedSource},
		"other number, same slot":   {func(c *change) { c.dest ^= 1 << 23 }, refusedUnknownQPN},
		"QP1":                       {func(c *change) { c.dest = 1 }, refusedUnknownQPN},
		"UC to an RC queue pair":    {func(c *change) { c.op = wire.UCSendOnly }, refusedService},
		"UD to an RC queue pair":    {func(c *change) { c.op = wire.UDSendOnly }, refusedService},
		"XRC to an RC queue pair":   {func(c *change) { c.op = wire.XRCSendOnly }, refusedService},
		"CNP":                       {func(c *change) { c.op = wire.CNP }, accepted},
		"CNP in RTR":                {func(c *change) { c.op, c.state = wire.CNP, ib.StateRTR }, accepted},
		"CNP in INIT":               {func(c *change) { c.op, c.state = wire.CNP, ib.StateInit }, refusedState},
		"CNP of somebody else":      {func(c *change) { c.op, c.source = wire.CNP, "10.0.0.3" }, refusedSource},
		"request in INIT":           {func(c *change) { c.state = ib.StateInit }, refusedState},
		"request in RESET":          {func(c *change) { c.state = ib.StateReset }, refusedState},
		"request in ERR":            {func(c *change) { c.state = ib.StateErr }, refusedState},
		"response in RTR":           {func(c *change) { c.op, c.state = wire.RCAcknowledge, ib.StateRTR }, refusedState},
		"other partition":           {func(c *change) { c.pkey = 0xfffe }, refusedPKey},
		"partition 0":               {func(c *change) { c.pkey = 0x8000 }, refusedPKey},
		"somebody else":             {func(c *change) { c.source = "10.0.0.3" }, refusedSource},
		"IPv6 in place of IPv4":     {func(c *change) { c.source = "2001:db8::2" }, refusedSource},
		"to another address of us":  {func(c *change) { c.dst = "10.0.0.9" }, refusedDest},
		"state before P_Key":        {func(c *change) { c.state, c.pkey = ib.StateInit, 1 }, refusedState},
		"P_Key before the source":   {func(c *change) { c.pkey, c.source = 1, "10.0.0.3" }, refusedPKey},
		"source before destination": {func(c *change) { c.source, c.dst = "10.0.0.3", "10.0.0.9" }, refusedSource},
	} {
		c := right
		tt.edit(&c)
		var p wire.Packet
		f := wire.NewBurst(1).Next()
		f.SetHeader(c.op)
		f.Path = &wire.Path{Source: gid(c.source), Dest: gid(c.dst)}
		f.BTH().SetDestQP(c.dest)
		f.BTH().SetPKey(c.pkey)
		p.FromFrame(f)
		p.Local = c.local
		x.qp.state = c.state
		q, got := s.judge(&p)
		if got != tt.want || (q == x.qp) != (tt.want == accepted) {
			t.Errorf("%s: refusal %q, want %q", name, refusalNames[got], refusalNames[tt.want])
		}
	}
	x.qp.state = ib.StateRTS

	// An address that went away is no address of ours, whatever the path says.
	a.dev.SetLink(Link{MTU: 9000, Up: true, Addrs: addrs("10.0.0.77")})
	var p wire.Packet
	f := wire.NewBurst(1).Next()
	f.SetHeader(right.op)
	f.Path = &wire.Path{Source: gid(right.source), Dest: gid(right.dst)}
	f.BTH().SetDestQP(right.dest)
	f.BTH().SetPKey(right.pkey)
	p.FromFrame(f)
	if _, got := s.judge(&p); got != refusedForeign {
		t.Errorf("to an address that went away: refusal %q", refusalNames[got])
	}
	if n := testing.AllocsPerRun(100, func() { s.judge(&p) }); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}

// On loopback both ends have the same address, and that is no forgery.
func TestLoopbackToSelf(t *testing.T) {
	port := newCable(64)
	a := newHost(t, "softnic0", "127.0.0.1", port, nil)
	w := &world{devs: []*Device{a.dev}}
	x, y := a.newQP(t, nil), a.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	exchange(t, w, x, y)
	if g, typ, ifindex, err := a.dev.GID(0); err != nil || g != gid("127.0.0.1") || typ != ib.GIDTypeRoCEv2 || ifindex != 7 {
		t.Errorf("GID 0: %s %s %d %v", g, typ, ifindex, err)
	}
	if !a.dev.IsLocal(gid("127.0.0.1")) || a.dev.IsLocal(gid("127.0.0.2")) || a.dev.IsLocal(ib.GID{}) {
		t.Error("IsLocal is wrong about 127.0.0.1, 127.0.0.2 or the empty entry")
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	if err := b.ctx.DestroyQP(y.qp); err != nil {
		t.Fatal(err)
	}
	x.postSend(sendWQE(1), x.sge(0, 10))
	a.dev.Step(w.now)
	b.dev.Step(w.now)
	if n := b.counter("rx_unknown_qpn"); n != 1 {
		t.Errorf("rx_unknown_qpn %d, want 1", n)
	}
	if n := a.counter("port_xmit_packets"); n != 1 {
		t.Errorf("port_xmit_packets %d, want 1", n)
	}
}
