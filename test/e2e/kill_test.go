package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// mapped counts what a process has mapped of an application's memory.
func mapped(t testing.TB, pid int) int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	check(t, err)
	return strings.Count(string(maps), "memfd:softnic-arena") + strings.Count(string(maps), "memfd:softnic-doorbell")
}

// descriptors counts what a process has open.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	check(t, err)
	return len(list)
}

// status returns a number of /proc/PID/status.
func status(t testing.TB, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	var n int
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			fmt.Sscan(v, &n)
		}
	}
	return n
}

// An application that is killed in the middle of a transfer is gone within 100 ms, and another one's transfer goes on.
func TestKilledClient(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback, "--device", "softnic1=127.0.0.2")
	stop := make(chan struct{})
	others := make(chan error, 1)
	x, y := newSide(d.open("softnic0"), 1<<18), newSide(d.open("softnic1"), 1<<18)
	join(x, y)
	var rounds atomic.Int64
	go func() { others <- transfer(t.Context(), x, y, stop, &rounds) }()

	within(t, 100*time.Millisecond, func(t *testing.T) time.Duration {
		own := newSide(d.open("softnic0"), 1<<20)
		before, fds := mapped(t, d.cmd.Process.Pid), descriptors(t, d.cmd.Process.Pid)
		e := own.endpoint()
		victim := cast(t, "target", d.socket, func(c *exec.Cmd) {
			c.Env = append(c.Env, "SOFTNICD_E2E_PEER="+string(must(json.Marshal(e))),
				"SOFTNICD_E2E_MEMORY="+string(must(json.Marshal(address{Addr: own.mr.Addr(), RKey: own.mr.RKey()}))))
		})
		a := heard[address](t, victim, "address")
		check(t, own.qp.ConnectRC(e, a.Endpoint, verbs.RCAttr{Timeout: 8, RetryCnt: 2}))
		victim.hear("connected")
		victim.hear("busy")
		if mapped(t, d.cmd.Process.Pid) <= before {
			t.Fatal("the daemon has mapped nothing of the application")
		}
		// A READ of the dead one's memory must fail later: its keys name nothing any more.
		victim.kill()
		took := eventually(t, "the daemon has unmapped what the application had", patience, func() bool {
			return mapped(t, d.cmd.Process.Pid) == before && descriptors(t, d.cmd.Process.Pid) == fds
		})
		seen := rounds.Load()
		check(t, own.rdma(1, ib.WRRDMARead, 0, 64, a.Addr, a.RKey))
		if wc, err := own.next(timeout(t)); err != nil || wc.Status != ib.WCRetryExcErr {
			t.Errorf("a READ of the dead one's memory: %v, %v", wc.Status, err)
		}
		if rounds.Load() == seen {
			t.Error("the other application's transfer stands")
		}
		return took
	})
	close(stop)
	check(t, <-others)
	t.Logf("the other application transferred %d times 256 KiB meanwhile", rounds.Load())
}

// transfer sends random bytes back and forth and verifies each, until it is told to stop.
func transfer(ctx context.Context, x, y *side, stop chan struct{}, rounds *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := uint64(1); ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		fill(x.mem, i)
		if err := y.recv(i, 0, len(y.mem)); err != nil {
			return err
		}
		if err := x.send(i, 0, len(x.mem)); err != nil {
			return err
		}
		if err := x.expect(ctx, i); err != nil {
			return err
		}
		if err := y.expect(ctx, i); err != nil {
			return err
		}
		if !bytes.Equal(x.mem, y.mem) {
			return fmt.Errorf("round %d: the bytes differ", i)
		}
		rounds.Add(1)
	}
}

// When the daemon is killed, whoever waits for it in whatever way learns it within 100 ms.
func TestKilledDaemon(t *testing.T) {
	ways := []string{"event", "wait", "async", "poll"}
	within(t, 100*time.Millisecond, func(t *testing.T) time.Duration {
		d := startDaemon(t, "--device", onLoopback)
		w := cast(t, "watcher", d.socket)
		w.hear("ready")
		begin := time.Now()
		d.cmd.Process.Kill()
		longest := time.Duration(0)
		for range ways {
			line := w.next()
			how, text, _ := strings.Cut(line, " ")
			var l lesson
			check(t, json.Unmarshal([]byte(text), &l))
			took := l.At.Sub(begin)
			t.Logf("%s: %v after %v", how, l.Err, took)
			if !l.Fatal {
				t.Errorf("%s learnt %q, not ErrDeviceFatal", how, l.Err)
			}
			longest = max(longest, took)
		}
		return longest
	})
}

// A request that is under way when the daemon is killed ends as well, and so does everything after it.
func TestKilledDaemonRequests(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	ctx := d.open("softnic0")
	s := newSide(ctx, 4096)
	result := make(chan error, 1)
	go func() {
		for {
			pd, err := ctx.AllocPD()
			if err == nil {
				err = pd.Dealloc()
			}
			if err != nil {
				result <- err
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond)
	d.cmd.Process.Kill()
	select {
	case err := <-result:
		if !isFatal(err) {
			t.Errorf("the request: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the request hangs")
	}
	eventually(t, "posting fails", patience, func() bool { return isFatal(s.recv(1, 0, 64)) })
	if _, err := s.cq.ReqNotify(false); !isFatal(err) {
		t.Errorf("ReqNotify: %v", err)
	}
	if err := s.mr.Dereg(); !isFatal(err) {
		t.Errorf("Dereg: %v", err)
	}
	check(t, ctx.Close())
}
