package verbs_test

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// TestShards runs the contract again with devices of four shards: within one device, where most packets change shards, and
// over sockets whose kernel steers every datagram to a wrong one; and a part of it over other links. `make links` runs all
// tests of this package so.
func TestShards(t *testing.T) {
	if testShards != 0 || testLink != "" {
		t.Skip("this is such a run")
	}
	for _, run := range []struct {
		name, env string
		tests     []string
	}{
		{"memory", "", brief},
		{"local", "SOFTNIC_TEST_LINK=local", contract},
		{"missteered", "SOFTNIC_TEST_LINK=udp SOFTNIC_TEST_STEERING=wrong", contract},
		{"raw", "SOFTNIC_TEST_LINK=raw", brief},
	} {
		t.Run(run.name, func(t *testing.T) {
			t.Parallel()
			tests := run.tests
			if testing.Short() {
				tests = brief
			}
			env := strings.Fields("SOFTNIC_TEST_SHARDS=4 " + run.env)
			c := exec.Command("/proc/self/exe", "-test.run", "^Test("+strings.Join(tests, "|")+")$", "-test.short", "-test.timeout", "60s")
			c.Env = append(os.Environ(), env...)
			out, err := c.CombinedOutput()
			if c.ProcessState != nil && c.ProcessState.ExitCode() == cannot {
				t.Skip(string(out))
			}
			if err != nil {
				t.Errorf("%v\n%s\nrepeat: %s go test ./verbs", err, out, strings.Join(env, " "))
			}
		})
	}
}

const manyShards = 4

// crowd is connections between two devices of several shards, or within one, over all pairs of shards.
type crowd struct {
	t    *testing.T
	a, b *verbs.Context
	from []*side
	to   []*side
}

func newCrowd(t *testing.T, within bool, n int) *crowd {
	t.Helper()
	var net embedded.Network
	c := &crowd{t: t, a: openDevice(t, embedded.Options{Network: &net, Shards: manyShards})}
	if c.b = c.a; !within {
		c.b = openDevice(t, embedded.Options{Network: &net, Shards: manyShards})
	}
	used := [2][manyShards]int{}
	for i := range n {
		x, y := newSide(t, c.a, 256, smallCap), newSide(t, c.b, 256, smallCap)
		if i%2 == 1 && within {
			x, y = y, x // so that each shard has both sides
		}
		connectSides(t, x, y, verbs.RCAttr{Timeout: 18})
		c.from, c.to = append(c.from, x), append(c.to, y)
		used[0][nic.ShardOf(x.qp.QPN(), manyShards)]++
		used[1][nic.ShardOf(y.qp.QPN(), manyShards)]++
	}
	for i := range manyShards {
		if used[0][i]+used[1][i] == 0 || !within && used[0][i]*used[1][i] == 0 {
			t.Fatalf("queue pairs by shard: %v", used)
		}
	}
	return c
}

// ways are two devices, and one.
func ways(t *testing.T, f func(t *testing.T, within bool)) {
	for _, within := range []bool{false, true} {
		t.Run(map[bool]string{false: "two devices", true: "one device"}[within], func(t *testing.T) {
			if !within {
				apart(t)
			}
			f(t, within)
		})
	}
}

// Fetch-and-adds to one address from queue pairs of all shards are linearizable: every value is fetched once, and what began
// after another had completed fetched a later one.
func TestAtomicsOfAllShards(t *testing.T) {
	ways(t, func(t *testing.T, within bool) {
		const pairs, each, depth = 8, 400, 8
		c := newCrowd(t, within, pairs)
		target := newSide(t, c.b, 64, smallCap)
		type fetch struct{ value, began, ended uint64 }
		var clock atomic.Uint64
		all := make([][]fetch, pairs)
		var wg sync.WaitGroup
		for i, s := range c.from {
			// One memory, by a registration in the domain of each queue pair.
			mr := must(c.to[i].pd.RegMR(target.buf.Bytes(), everything))
			words := s.buf.Bytes()
			wg.Go(func() {
				began := [depth]uint64{}
				for posted, done := 0, 0; done < each; {
					for ; posted < each && posted-done < depth; posted++ {
						k := posted % depth
						began[k] = clock.Add(1)
						if err := s.qp.PostSend(verbs.SendWR{
							WRID: uint64(posted), Opcode: ib.WRAtomicFetchAdd, Flags: ib.SendSignaled, CompareAdd: 1,
							RemoteAddr: mr.Addr(), RKey: mr.RKey(), SGList: []verbs.SGE{s.mr.SGE(8*k, 8)},
						}); err != nil {
							t.Error(err)
							return
						}
					}
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					var wc [1]verbs.WC
					_, err := s.cq.Wait(ctx, wc[:])
					cancel()
					if err != nil || wc[0].Status != ib.WCSuccess || wc[0].WRID != uint64(done) {
						t.Errorf("completion %+v, %v", wc[0], err)
						return
					}
					k := done % depth
					v := uint64(0)
					for j := range 8 {
						v |= uint64(words[8*k+j]) << (8 * j)
					}
					all[i] = append(all[i], fetch{v, began[k], clock.Add(1)})
					done++
				}
			})
		}
		wg.Wait()
		history := slices.Concat(all...)
		if t.Failed() {
			return
		}
		slices.SortFunc(history, func(a, b fetch) int { return cmp.Compare(a.value, b.value) })
		earliest := uint64(math.MaxUint64) // end of whatever fetched a later value
		for i := len(history) - 1; i >= 0; i-- {
			f := history[i]
			if f.value != uint64(i) {
				t.Fatalf("value %d was fetched, %d is missing", f.value, i)
			}
			if earliest < f.began {
				t.Fatalf("value %d was fetched by a request that began at %d, a later one was there at %d", i, f.began, earliest)
			}
			earliest = min(earliest, f.ended)
		}
	})
}

// Queue pairs of all shards share a completion queue and a shared receive queue, and write into one region. All of it is
// destroyed while they are at it: the region first, after which nobody touches its memory.
func TestSharedByShardsDestroyed(t *testing.T) {
	ways(t, func(t *testing.T, within bool) {
		const pairs, rounds = 8, 6
		var net embedded.Network
		a := openDevice(t, embedded.Options{Network: &net, Shards: manyShards, Limits: quick})
		b := a
		if !within {
			b = openDevice(t, embedded.Options{Network: &net, Shards: manyShards, Limits: quick})
		}
		for round := range rounds {
			destroyUnderLoad(t, a, b, pairs, uint64(round))
		}
	})
}

func destroyUnderLoad(t *testing.T, a, b *verbs.Context, pairs int, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	pdA, pdB := must(a.AllocPD()), must(b.AllocPD())
	cqA, cqB := must(a.CreateCQ(8192)), must(b.CreateCQ(8192))
	// What two queue pairs write at once must not be the same memory: nobody says what it will hold.
	const slots, slot = 64, 8192
	srq := must(pdB.CreateSRQ(verbs.SRQAttr{MaxWR: slots, MaxSGE: 1}))
	bufA, bufB, inbox := must(pdA.AllocBuffer(slot)), must(pdB.AllocBuffer(pairs*slot)), must(pdB.AllocBuffer(slots*slot))
	mrA, mrB, mrInbox := must(pdA.RegMR(bufA.Bytes(), everything)), must(pdB.RegMR(bufB.Bytes(), everything)), must(pdB.RegMR(inbox.Bytes(), everything))
	for i, memory := 0, bufA.Bytes(); i < len(memory); i++ {
		memory[i] = byte(i % 0xee)
	}
	var from, to []*verbs.QP
	gidA, gidB := must(a.QueryGID(1, 0)).GID, must(b.QueryGID(1, 0)).GID
	for range pairs {
		x := must(pdA.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cqA, RecvCQ: cqA, Cap: smallCap}))
		y := must(pdB.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cqB, RecvCQ: cqB, SRQ: srq, Cap: smallCap}))
		ex := verbs.Endpoint{QPN: x.QPN(), PSN: verbs.RandomPSN(), GID: gidA}
		ey := verbs.Endpoint{QPN: y.QPN(), PSN: verbs.RandomPSN(), GID: gidB}
		check(t, x.ConnectRC(ex, ey, verbs.RCAttr{}))
		check(t, y.ConnectRC(ey, ex, verbs.RCAttr{}))
		from, to = append(from, x), append(to, y)
	}
	var stop atomic.Bool
	var moved, received atomic.Uint64
	var wg sync.WaitGroup
	wg.Go(func() { // the sender
		wcs := make([]verbs.WC, 64)
		for i := 0; !stop.Load(); i++ {
			x := from[i%len(from)]
			write := verbs.SendWR{
				Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, RemoteAddr: mrB.Addr() + uint64(i%len(from)*slot), RKey: mrB.RKey(),
				SGList: []verbs.SGE{mrA.SGE(0, 1+random.IntN(slot))},
			}
			send := verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{mrA.SGE(0, 1+random.IntN(slot))}}
			_ = x.PostSend(write, send) // full, or in error
			n, err := cqA.Poll(wcs)
			if err != nil {
				t.Error(err)
				return
			}
			for _, wc := range wcs[:n] {
				if wc.Status == ib.WCSuccess {
					moved.Add(1)
				}
			}
		}
	})
	wg.Go(func() { // the receiver
		wcs := make([]verbs.WC, 64)
		post := func(i uint64) {
			_ = srq.PostRecv(verbs.RecvWR{WRID: i, SGList: []verbs.SGE{mrInbox.SGE(slot*int(i), slot)}})
		}
		for i := range uint64(slots) {
			post(i)
		}
		for !stop.Load() {
			n, err := cqB.Poll(wcs)
			if err != nil {
				t.Error(err)
				return
			}
			for _, wc := range wcs[:n] {
				if wc.Status == ib.WCSuccess {
					received.Add(1)
				}
				post(wc.WRID)
			}
		}
	})
	for end := time.Now().Add(5 * time.Second); moved.Load() < 200 || received.Load() < 50; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d moved, %d received", moved.Load(), received.Load())
		}
	}
	overwrite := func(memory []byte) {
		for i := range memory {
			memory[i] = 0xee
		}
		time.Sleep(2 * time.Millisecond)
	}
	if seed%2 == 0 {
		check(t, mrA.Dereg())
		overwrite(bufA.Bytes())
		check(t, mrB.Dereg())
		if i := slices.Index(bufB.Bytes(), 0xee); i >= 0 {
			t.Fatalf("byte %d was read in memory that is not registered any more", i)
		}
	} else {
		check(t, mrB.Dereg())
		memory := bufB.Bytes()
		overwrite(memory)
		if i := slices.IndexFunc(memory, func(v byte) bool { return v != 0xee }); i >= 0 {
			t.Fatalf("byte %d of memory that is not registered any more was written", i)
		}
		check(t, mrA.Dereg())
	}
	wantErrno(t, cqB.Close(), syscall.EBUSY)
	wantErrno(t, srq.Close(), syscall.EBUSY)
	for i := range pairs {
		check(t, to[i].Close())
	}
	stop.Store(true) // the application's own hands off what it closes
	wg.Wait()
	for i := range pairs {
		check(t, from[i].Close())
	}
	for _, closer := range []func() error{srq.Close, cqB.Close, cqA.Close, mrInbox.Dereg} {
		check(t, closer())
	}
	for _, buf := range []*verbs.Buffer{bufA, bufB, inbox} {
		check(t, buf.Free())
	}
	check(t, pdA.Dealloc())
	check(t, pdB.Dealloc())
}

// Whoever rings for a queue pair wakes its shard, and however long all of them slept.
func TestSleepingShards(t *testing.T) {
	ways(t, func(t *testing.T, within bool) {
		c := newCrowd(t, within, 8)
		for round := range uint64(4) {
			for i, s := range c.from {
				time.Sleep(2 * time.Millisecond) // many times what they look around for
				write := s.remote(c.to[i], ib.WRRDMAWrite, c.to[i].mr.RKey())
				write.WRID = round
				check(t, s.qp.PostSend(write))
				s.expect(round, ib.WCSuccess)
			}
		}
	})
}

// A whole context goes while queue pairs of all shards are at work, and others go on.
func TestContextOfAllShardsCloses(t *testing.T) {
	var net embedded.Network
	d := must(newDevice(embedded.Options{Network: &net, Shards: manyShards}))
	t.Cleanup(func() { check(t, d.Close()) })
	stays := must(d.Open())
	defer stays.Close()
	a, b := newSide(t, stays, 256, smallCap), newSide(t, stays, 256, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	for round := range 5 {
		ctx := must(d.Open())
		var sides []*side
		for range 6 {
			x, y := newSide(t, ctx, 256, smallCap), newSide(t, ctx, 256, smallCap)
			connectSides(t, x, y, verbs.RCAttr{})
			for range 16 {
				check(t, x.qp.PostSend(x.remote(y, ib.WRRDMAWrite, y.mr.RKey())))
			}
			sides = append(sides, x, y)
		}
		check(t, ctx.Close())
		for i := range uint64(20) {
			write := a.remote(b, ib.WRRDMAWrite, b.mr.RKey())
			write.WRID = uint64(round)*100 + i
			check(t, a.qp.PostSend(write))
			a.expect(write.WRID, ib.WCSuccess)
		}
		_ = sides
	}
}

// Datagrams to a group reach members on all shards, from senders on all of them.
func TestGroupOfAllShards(t *testing.T) {
	ways(t, func(t *testing.T, within bool) {
		var net embedded.Network
		a := openDevice(t, embedded.Options{Network: &net, Shards: manyShards})
		b := a
		if !within {
			b = openDevice(t, embedded.Options{Network: &net, Shards: manyShards})
		}
		var group ib.GID
		var members []*side
		shards := map[[2]int]bool{}
		for i := range 2 * manyShards {
			m := newListener(t, []*verbs.Context{a, b}[i%2])
			group = groupOf(m.end.GID, 2)
			shards[[2]int{i % 2, nic.ShardOf(m.qp.QPN(), manyShards)}] = true
			check(t, m.qp.AttachMcast(group))
			members = append(members, m)
		}
		if len(shards) != 2*manyShards && !within {
			t.Fatalf("members on %v", shards)
		}
		for i, from := range members {
			ah := must(from.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: group}}))
			wr := from.send(uint64(i), 100)
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, ib.MulticastQPN, teamQKey
			check(t, from.qp.PostSend(wr))
			from.expect(uint64(i), ib.WCSuccess)
			for _, m := range members {
				if m == from {
					continue
				}
				if wc := m.next(); wc.Status != ib.WCSuccess || wc.Opcode != ib.WCRecv || wc.SrcQP != from.qp.QPN() {
					t.Fatalf("receive %+v", wc)
				}
				check(t, m.qp.PostRecv(m.recv(100, 1024, 1024)))
			}
		}
		for _, m := range members {
			check(t, m.qp.DetachMcast(group))
		}
	})
}
