package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
)

// worried are the attributes of a connection through a bad network: 67 ms before a retry, as rxe's programs have it.
var worried = attr{mtu: 4096, timeout: 14, retry: 7, rnrRetry: 7, rnrTimer: 12}

// TestFaults spoils the network in both directions, at the port of our device: what it sends and what it receives. Nothing
// that arrives is wrong, and everything ends.
func TestFaults(t *testing.T) {
	m := theMachine(t)
	for _, action := range []string{"drop", "duplicate", "reorder, behind: 3", "corrupt"} {
		for _, percent := range []int{1, 5} {
			name, _, _ := strings.Cut(action, ",")
			t.Run(fmt.Sprintf("%s %d %%", name, percent), func(t *testing.T) {
				if percent != 5 || name != "drop" && name != "corrupt" {
					full(t)
				}
				plan := filepath.Join(t.TempDir(), "plan")
				text := fmt.Sprintf("{seed: %d, rules: [{action: %s, probability: 0.0%d}]}\n", percent, action, percent)
				if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				d := startDaemon(t, m, "--fault", plan)
				o, p := newOurs(t, d, false), newTheirs(t, m, false)
				directions(t, o, p, func(p *pair) { p.bear(p.t) })
			})
		}
	}
}

// bear runs what takes many packets.
func (p *pair) bear(t *testing.T) {
	a := worried
	if _, rxe := p.asked.(*theirs); rxe {
		// What follows a READ waits behind all the answers that rxe gives to its repetitions.
		a.timeout = calm.timeout
	}
	for _, a.mtu = range []int{4096, 1024} {
		p.connect("rc", false, a)
		n := 256 << 10
		if *everything {
			n = 1 << 20
		}
		for range 2 {
			p.send(n)
			p.write(n)
			p.writeImm(n / 4)
			p.read(n / 8) // each loss costs rxe another answer, see docs/interop.md
		}
		for range 5 {
			p.atomics()
		}
		p.send(1)
	}
}

// TestReceiverNotReady posts the receive after the request has come.
func TestReceiverNotReady(t *testing.T) {
	m := theMachine(t)
	d := startDaemon(t, m)
	o, p := newOurs(t, d, false), newTheirs(t, m, false)
	directions(t, o, p, func(p *pair) {
		p.connect("rc", false, calm)
		for _, n := range []int{16, 3*4096 + 7} {
			p.prepare(p.asker, 0, p.asked, target, n)
			p.must(p.asked.recv(1, target, n, 100*time.Millisecond))
			p.ask(work{Op: "SEND", Length: n})
			p.ends(ib.WCSuccess)
			p.received(n)
			p.same(0, target, n)
		}
		p.prepare(p.asker, 0, p.asked, target, 8192)
		p.must(p.asked.recv(1, target, 0, 100*time.Millisecond))
		p.ask(work{Op: "RDMA_WRITE_WITH_IMM", Length: 8192, Imm: 7})
		p.ends(ib.WCSuccess)
		p.received(8192)
		p.same(0, target, 8192)

		// One that is never posted.
		a := calm
		a.rnrRetry = 2
		p.connect("rc", false, a)
		p.ask(work{Op: "SEND", Length: 16})
		p.ends(ib.WCRNRRetryExcErr)
	})
}

// TestRefused names memory wrongly, and sends more than was made room for: the status is the right one, what comes behind
// is flushed, and nothing is written.
func TestRefused(t *testing.T) {
	m := theMachine(t)
	d := startDaemon(t, m)
	o, p := newOurs(t, d, false), newTheirs(t, m, false)
	directions(t, o, p, func(p *pair) {
		end := p.answersAt(memory)
		for _, w := range []work{
			{Op: "RDMA_WRITE", Length: 64, RKey: 0xdead00},
			{Op: "RDMA_READ", Length: 64, RKey: 0xdead00},
			{Op: "ATOMIC_FETCH_AND_ADD", Length: 8, RKey: 0xdead00},
			{Op: "RDMA_WRITE", Length: 3 * 4096, Remote: end - 4096},
			{Op: "RDMA_READ", Length: 64, Remote: end - 16},
		} {
			p.connect("rc", false, calm)
			p.prepare(p.asker, 0, p.asked, target, 64)
			p.ask(w)
			p.ends(ib.WCRemAccessErr)
			p.ask(work{Op: "SEND", Length: 4})
			p.ends(ib.WCWRFlushErr)
			if v, err := p.asked.word(target); err != nil || v != 0 {
				p.t.Fatalf("%s: memory holds %#x, %v", w.Op, v, err)
			}
		}
		// rxe calls it an error of its own, remote operational; see docs/interop.md.
		p.connect("rc", false, calm)
		p.must(p.asked.recv(1, target, 16, 0))
		p.ask(work{Op: "SEND", Length: 64})
		want, at := ib.WCRemInvReqErr, ib.WCLocLenErr
		if _, rxe := p.asked.(*theirs); rxe {
			want, at = ib.WCRemOpErr, ib.WCLocQPOpErr
		}
		p.ends(want)
		if c, err := p.asked.poll(1, patience); err != nil || len(c) != 1 || c[0].Status != at {
			p.t.Fatalf("receive %+v, %v, want %v", c, err, at)
		}
	})
}

// answersAt is an address in the memory of the side that is asked, by an offset.
func (p *pair) answersAt(off int) uint64 {
	p.t.Helper()
	p.connect("rc", false, calm)
	return p.answers.Addr + uint64(off)
}

// TestPause stops the machine for a while, in the midst of transfers that then go on.
func TestPause(t *testing.T) {
	m := theMachine(t)
	d := startDaemon(t, m)
	o, p := newOurs(t, d, false), newTheirs(t, m, false)
	directions(t, o, p, func(p *pair) {
		p.connect("rc", false, calm)
		n := 1 << 20
		p.prepare(p.asker, 0, p.asked, target, n)
		const requests = 16
		for range requests {
			p.ask(work{Op: "RDMA_WRITE", Length: n})
		}
		m.pause(t, 2*time.Second) // calm takes 4 s before it gives up
		c, err := p.asker.poll(requests, patience)
		p.must(err)
		for i := range c {
			if c[i].Status != ib.WCSuccess {
				p.t.Fatalf("request %d: %v", i, c[i].Status)
			}
		}
		if len(c) != requests {
			p.t.Fatalf("%d of %d requests ended", len(c), requests)
		}
		p.same(0, target, n)
		p.read(n)
	})
}

// TestPeerKilled ends the other side without a word: the requester's retries end, with the status for that.
func TestPeerKilled(t *testing.T) {
	m := theMachine(t)
	d := startDaemon(t, m)
	t.Run("rxe's program", func(t *testing.T) {
		o, p := newOurs(t, d, false), newTheirs(t, m, false)
		q := &pair{t: t, asker: o, asked: p}
		q.connect("rc", false, worried)
		q.write(64)
		_ = p.call("die", nil, nil)
		// The machine takes the queue pair down a moment after the process.
		q.failsSoon(o)
	})
	t.Run("our daemon", func(t *testing.T) {
		o, p := newOurs(t, d, false), newTheirs(t, m, false)
		q := &pair{t: t, asker: p, asked: o}
		a := worried
		a.retry = 3 // rxe takes 7 for ever
		q.connect("rc", false, a)
		q.write(64)
		d.kill()
		q.failsSoon(p)
	})
}

// failsSoon posts until a request ends with RETRY_EXC_ERR.
func (p *pair) failsSoon(s side) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		p.ask(work{Op: "RDMA_WRITE", Length: 64})
		c, err := s.poll(1, patience)
		p.must(err)
		if len(c) == 1 && c[0].Status == ib.WCRetryExcErr {
			return
		}
		if len(c) != 1 || c[0].Status != ib.WCSuccess {
			p.t.Fatalf("completions %+v, want RETRY_EXC_ERR", c)
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Fatal("requests to a peer that is gone go on succeeding")
}
