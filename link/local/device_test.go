package local

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// pair is two queue pairs of one device, connected by the local port, and the application that has both. The test turns the
// device.
type pair struct {
	t    testing.TB
	dev  *nic.Device
	ctx  *nic.Context
	bell *abi.Doorbell
	cq   *cq.Reader
	mem  []byte  // registered at base
	mr   *nic.MR // all of mem
	far  *nic.MR // its second half, which requests name
	a, b *end
	more func() (a, b *end) // connects two more queue pairs, of the same completion queue
	wcs  [64]abi.CQE
	now  clock.Time // of tests; benchmarks have that of the host
}

// end is one of the queue pairs.
type end struct {
	*pair
	qp           *nic.QP
	block        *abi.QPBlock
	sends, recvs uint32
}

const (
	base  = 0x10000
	depth = 256
)

var address = netip.MustParseAddr("10.0.0.1")

func newPair(t testing.TB, port nic.Port, bytes int) *pair {
	t.Helper()
	p := &pair{t: t}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.mem, err = unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	check(err)
	t.Cleanup(func() { unix.Munmap(p.mem) })
	p.dev, err = nic.New(nic.Config{
		Name: "softnic0", Port: port, Now: p.clock, Manual: true, Limits: nic.Limits{MaxQP: 256, MaxMR: 64},
		Link: nic.Link{Name: "test0", MTU: 9000, Up: true, Addrs: []netip.Addr{address}},
	})
	check(err)
	t.Cleanup(func() { p.dev.Close() })
	page := make([]byte, abi.DoorbellSize)
	p.bell, err = abi.NewDoorbell(page)
	check(err)
	p.ctx, err = p.dev.OpenContext(nic.ContextConfig{Doorbell: page, Owner: true})
	check(err)
	pd, err := p.ctx.AllocPD()
	check(err)
	p.mr, err = p.ctx.RegMR(pd, nic.MRConfig{Region: dma.NewShared(p.mem, nil), Base: base, Length: uint64(bytes),
		Access: ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead})
	check(err)
	half := bytes / 2
	p.far, err = p.ctx.RegMR(pd, nic.MRConfig{Region: dma.NewShared(p.mem[half:], nil), Base: base + uint64(half), Length: uint64(half),
		Access: ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead})
	check(err)
	block := make([]byte, abi.CQBlockSize(abi.CQCapacity(130*depth)))
	queue, err := p.ctx.CreateCQ(nic.CQConfig{Block: block, Entries: 130 * depth})
	check(err)
	p.cq, err = cq.NewReader(block, queue.Capacity())
	check(err)
	p.a, p.b = p.connect(pd, queue)
	p.more = func() (a, b *end) { return p.connect(pd, queue) }
	return p
}

// connect makes two queue pairs and connects them.
func (p *pair) connect(pd *nic.PD, queue *nic.CQ) (a, b *end) {
	check := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	for _, e := range []**end{&a, &b} {
		*e = &end{pair: p}
		var err error
		(*e).qp, err = p.ctx.CreateQP(nic.QPConfig{PD: pd, Type: ib.QPTypeRC, SendCQ: queue, RecvCQ: queue,
			Cap: ib.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2},
			Block: func(l abi.QPLayout) (b []byte, err error) {
				b = make([]byte, l.Size())
				(*e).block, err = abi.NewQPBlock(b, l)
				return b, err
			}})
		check(err)
	}
	gid := ib.GIDFromAddr(address)
	for _, x := range [][2]*end{{a, b}, {b, a}} {
		rights := ib.AccessRemoteWrite | ib.AccessRemoteRead
		check(p.ctx.ModifyQP(x[0].qp, &ib.QPAttr{State: ib.StateInit, PortNum: 1, AccessFlags: rights},
			ib.QPAttrState|ib.QPAttrPort|ib.QPAttrPKeyIndex|ib.QPAttrAccessFlags))
		check(p.ctx.ModifyQP(x[0].qp, &ib.QPAttr{State: ib.StateRTR, PathMTU: ib.MTU4096, DestQPN: x[1].qp.QPN(), RQPSN: 0xfffffe,
			AH: ib.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: gid}}, MaxDestRDAtomic: 4, MinRNRTimer: 1},
			ib.QPAttrState|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN|ib.QPAttrMaxDestRDAtomic|ib.QPAttrMinRNRTimer))
		check(p.ctx.ModifyQP(x[0].qp, &ib.QPAttr{State: ib.StateRTS, Timeout: 8, RetryCnt: 7, SQPSN: 0xfffffe, MaxRDAtomic: 4},
			ib.QPAttrState|ib.QPAttrTimeout|ib.QPAttrRetryCnt|ib.QPAttrRNRRetry|ib.QPAttrSQPSN|ib.QPAttrMaxRDAtomic))
	}
	return a, b
}

// clock is the device's.
func (p *pair) clock() clock.Time {
	if _, ok := p.t.(*testing.B); ok {
		return clock.Monotonic()
	}
	return p.now
}

// tear makes a page of the memory inaccessible.
func (p *pair) tear(at int) {
	if err := unix.Mprotect(p.mem[at:at+4096], unix.PROT_NONE); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: base + uint64(off), Length: uint32(n), LKey: p.mr.LKey()}
}

// post posts a request that names the bytes at to.
func (e *end) post(op ib.WROpcode, to int, list ...ib.SGE) {
	w := abi.SendWQE{WRID: uint64(e.sends), Opcode: uint8(op), Flags: uint8(ib.SendSignaled), RemoteAddr: base + uint64(to),
		RKey: uint32(e.far.RKey())}
	if !e.block.PutSend(e.sends, &w, list) {
		e.t.Fatal("a send that does not fit")
	}
	e.sends++
	e.block.PublishSend(e.sends)
	e.bell.Ring(e.qp.Slot())
}

func (e *end) postRecv(list ...ib.SGE) {
	w := abi.RecvWQE{WRID: 1<<32 | uint64(e.recvs)}
	if !e.block.PutRecv(e.recvs, &w, list) {
		e.t.Fatal("a receive that does not fit")
	}
	e.recvs++
	e.block.PublishRecv(e.recvs)
	e.bell.Ring(e.qp.Slot())
}

// turn turns the device until n completions came.
func (p *pair) turn(n int) []abi.CQE {
	got := p.wcs[:0]
	for idle := 0; len(got) < n; {
		next, busy := p.dev.Step(p.clock())
		if idle++; busy {
			idle = 0
		} else if idle > 1e6 {
			p.t.Fatalf("%d of %d completions came", len(got), n)
		}
		if !busy && next != clock.Never {
			p.now = max(p.now+1, next)
		}
		k, err := p.cq.Poll(p.wcs[len(got):n])
		if err != nil {
			p.t.Fatal(err)
		}
		got = p.wcs[:len(got)+k]
	}
	return got
}

// good turns the device until n completions came, all of success.
func (p *pair) good(n int) {
	for _, c := range p.turn(n) {
		if c.Status != 0 {
			p.t.Fatalf("completion %+v", c)
		}
	}
}

// samples are durations whose median is wanted: of a machine that others use, the mean says little.
type samples struct {
	n  int
	ns [4096]float64
}

func (s *samples) add(d time.Duration) {
	s.ns[s.n%len(s.ns)] = float64(d)
	s.n++
}

func (s *samples) median() float64 {
	all := s.ns[:min(s.n, len(s.ns))]
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkDevice is all of a message between two queue pairs of one device but for the applications' own threads. "of-copy" is
// the ratio to a copy of the same bytes, a packet at a time, in turns with it.
func BenchmarkDevice(b *testing.B) {
	const size, packet = 1 << 20, 4096
	for _, c := range []struct {
		name string
		op   ib.WROpcode
	}{{"write", ib.WRRDMAWrite}, {"read", ib.WRRDMARead}, {"send", ib.WRSend}} {
		b.Run(c.name+" 1 MiB", func(b *testing.B) {
			p := newPair(b, New(256), 2*size)
			b.SetBytes(size)
			b.ReportAllocs()
			var message, copied samples
			for b.Loop() {
				began := time.Now()
				n := 1
				if c.op == ib.WRSend {
					p.b.postRecv(p.sge(size, size))
					n = 2
				}
				p.a.post(c.op, size, p.sge(0, size))
				p.good(n)
				between := time.Now()
				for at := 0; at < size; at += packet {
					copy(p.mem[size+at:size+at+packet], p.mem[at:at+packet])
				}
				message.add(between.Sub(began))
				copied.add(time.Since(between))
			}
			b.ReportMetric(copied.median()/message.median(), "of-copy")
			b.ReportMetric(message.median()/(size/packet), "ns/packet")
		})
	}
	for _, n := range []int{1, 32} {
		b.Run("send 64 B, "+map[int]string{1: "one", 32: "many"}[n]+" at a time", func(b *testing.B) {
			p := newPair(b, New(256), size)
			b.ReportAllocs()
			var message samples
			for b.Loop() {
				began := time.Now()
				for i := range n {
					p.b.postRecv(p.sge(size/2+i*64, 64))
				}
				for i := range n {
					p.a.post(ib.WRSend, 0, p.sge(i*64, 64))
				}
				p.good(2 * n)
				message.add(time.Since(began))
			}
			b.ReportMetric(message.median()/float64(n), "ns/message")
		})
	}
}

// BenchmarkLoneSender is how long a message of 64 bytes takes beside 64 queue pairs that always have something long to send.
func BenchmarkLoneSender(b *testing.B) {
	const size = 1 << 20
	p := newPair(b, New(1024), 2*size)
	ends := map[uint32]*end{uint32(p.a.qp.QPN()): p.a}
	for range 64 {
		x, _ := p.more()
		ends[uint32(x.qp.QPN())] = x
		x.post(ib.WRRDMAWrite, size, p.sge(0, size))
		x.post(ib.WRRDMAWrite, size, p.sge(0, size))
	}
	var message samples
	for b.Loop() {
		began := time.Now()
		p.a.post(ib.WRRDMAWrite, size, p.sge(0, 64))
		for done := false; !done; {
			c := p.turn(1)[0]
			if done = c.QPN == uint32(p.a.qp.QPN()); !done {
				ends[c.QPN].post(ib.WRRDMAWrite, size, p.sge(0, size))
			}
		}
		message.add(time.Since(began))
	}
	b.ReportMetric(message.median()/1000, "us/message")
}

// Messages of many packets arrive whole, as runs or not, and the counters count packets.
func TestMessagesOfOneDevice(t *testing.T) {
	const size, far = 200_001, 1 << 19 // 49 packets
	for _, c := range []struct {
		name string
		port func() nic.Port
	}{
		{"runs", func() nic.Port { return New(256) }},
		{"single packets", func() nic.Port { return plain{New(256)} }},
		{"a small port", func() nic.Port { return New(3) }},
	} {
		for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRSend} {
			t.Run(c.name+", "+op.String(), func(t *testing.T) {
				port := c.port()
				p := newPair(t, port, 1<<20)
				for i := range p.mem {
					p.mem[i] = byte(i * 7 >> 3)
				}
				from, to := 0, far
				if op == ib.WRRDMARead {
					from, to = far, 0
				}
				want := slices.Clone(p.mem[from : from+size])
				n := 1
				if op == ib.WRSend {
					p.b.postRecv(p.sge(far, 1000), p.sge(far+1000, size-1000))
					n = 2
				}
				p.a.post(op, far, p.sge(0, 30_000), p.sge(30_000, size-30_000))
				p.good(n)
				if !slices.Equal(p.mem[to:to+size], want) {
					t.Error("the bytes are others")
				}
				k := port.Counters()
				// The packets of the message, a READ request, and acknowledgements.
				if got := k.SentPackets.Load(); got < 49+1 || got > 49+1+49 || got != k.ReceivedPackets.Load() {
					t.Errorf("%d packets sent, %d received", got, k.ReceivedPackets.Load())
				}
				if got := k.SentBytes.Load(); got < size+49*(wire.BTHSize+wire.ICRCSize) || got != k.ReceivedBytes.Load() {
					t.Errorf("%d bytes sent, %d received", got, k.ReceivedBytes.Load())
				}
			})
		}
	}
}

// plain is a port that takes no runs.
type plain struct{ nic.Port }

func TestMessagesOfOneDeviceAllocateNothing(t *testing.T) {
	const size, far = 1 << 17, 1 << 19
	p := newPair(t, New(256), 1<<20)
	for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRSend} {
		if n := testing.AllocsPerRun(20, func() {
			n := 1
			if op == ib.WRSend {
				p.b.postRecv(p.sge(far, size))
				n = 2
			}
			p.a.post(op, far, p.sge(0, size))
			p.good(n)
		}); n != 0 {
			t.Errorf("%v: %v allocations a message", op, n)
		}
	}
}

// Memory that goes while a message is under way ends it as it does packet by packet.
func TestMemoryGoneUnderRuns(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		name string
		op   ib.WROpcode
		gone int // where, in pages of the region
		want ib.WCStatus
	}{
		{"WRITE to it", ib.WRRDMAWrite, 256 + 100, ib.WCRemOpErr},
		{"READ of it", ib.WRRDMARead, 256 + 100, ib.WCRetryExcErr},
		{"READ into it", ib.WRRDMARead, 100, ib.WCLocProtErr},
		{"WRITE of it", ib.WRRDMAWrite, 100, ib.WCRetryExcErr},
	} {
		for name, port := range map[string]nic.Port{"runs": New(256), "single packets": plain{New(256)}} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				p := newPair(t, port, 2*size)
				p.tear(c.gone * 4096)
				p.a.post(c.op, size, p.sge(0, size))
				if e := p.turn(1)[0]; ib.WCStatus(e.Status) != c.want {
					t.Errorf("status %v, want %v", ib.WCStatus(e.Status), c.want)
				}
			})
		}
	}
}
