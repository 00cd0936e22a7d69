package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// Roles are what this test binary does when it is started again: applications that a test can kill.
const (
	roleVariable   = "SOFTNICD_E2E_ROLE"
	socketVariable = "SOFTNICD_E2E_SOCKET"
)

var roles = map[string]func(socket string){
	"crowd":   crowd,
	"target":  target,
	"watcher": watcher,
	"foreign": foreign,
}

// play runs a role. It ends when its standard input does, which is when the test is gone, at the latest.
func play(role string) int {
	go func() {
		defer func() {
			if r := recover(); r != nil {
				fmt.Println("failed", r)
				os.Exit(1)
			}
		}()
		roles[role](os.Getenv(socketVariable))
	}()
	bufio.NewReader(os.Stdin).ReadString(0)
	return 0
}

// actor is a process that plays a role.
type actor struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
}

// cast starts a process in a role.
func cast(t testing.TB, role, socket string, change ...func(*exec.Cmd)) *actor {
	t.Helper()
	a := &actor{t: t, cmd: exec.Command(must(os.Executable())), lines: make(chan string, 64)}
	a.cmd.Env = append(os.Environ(), roleVariable+"="+role, socketVariable+"="+socket)
	a.cmd.Stderr = os.Stderr
	a.cmd.SysProcAttr = &syscall.SysProcAttr{}
	for _, f := range change {
		f(a.cmd)
	}
	stdin := must(a.cmd.StdinPipe())
	stdout := must(a.cmd.StdoutPipe())
	check(t, a.cmd.Start())
	go func() {
		defer close(a.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			a.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		a.kill()
		a.cmd.Wait()
	})
	return a
}

// kill is kill -9.
func (a *actor) kill() { a.cmd.Process.Kill() }

// next waits for a line.
func (a *actor) next() string {
	a.t.Helper()
	select {
	case line, ok := <-a.lines:
		if !ok {
			a.t.Fatal("the process ended")
		}
		return line
	case <-time.After(patience):
		a.t.Fatal("the process says nothing")
	}
	return ""
}

// hear waits for a line that begins with a word, and returns the rest.
func (a *actor) hear(word string) string {
	a.t.Helper()
	line := a.next()
	rest, ok := strings.CutPrefix(line, word+" ")
	if !ok {
		a.t.Fatalf("the process said %q, expected %q", line, word)
	}
	return rest
}

// say tells the test something.
func say(word string, v any) {
	fmt.Printf("%s %s\n", word, must(json.Marshal(v)))
}

// address is what an application tells its peer.
type address struct {
	verbs.Endpoint
	Addr uint64
	RKey ib.RKey
	Err  string
}

func heard[T any](t testing.TB, a *actor, word string) T {
	t.Helper()
	var v T
	check(t, json.Unmarshal([]byte(a.hear(word)), &v))
	return v
}

// crowd is 100 applications in one process, each with everything that an application has, and all idle.
func crowd(socket string) {
	var all []*side
	for range 100 {
		all = append(all, newSide(must(verbs.Open("", verbs.WithSocket(socket))), 4096))
	}
	say("ready", len(all))
	select {}
}

// target tells its address, connects to the peer that its environment names, and transfers without end: it dies in the
// middle of that.
func target(socket string) {
	s := newSide(must(verbs.Open("softnic1", verbs.WithSocket(socket))), 4<<20)
	e := s.endpoint()
	say("address", address{Endpoint: e, Addr: s.mr.Addr(), RKey: s.mr.RKey()})
	var peer verbs.Endpoint
	if err := json.Unmarshal([]byte(os.Getenv("SOFTNICD_E2E_PEER")), &peer); err != nil {
		panic(err)
	}
	if err := s.qp.ConnectRC(e, peer, verbs.RCAttr{}); err != nil {
		panic(err)
	}
	say("connected", nil)
	var remote address
	if err := json.Unmarshal([]byte(os.Getenv("SOFTNICD_E2E_MEMORY")), &remote); err != nil {
		panic(err)
	}
	for i := uint64(1); ; i++ {
		if err := s.rdma(i, ib.WRRDMAWrite, 0, 1<<20, remote.Addr, remote.RKey); err != nil {
			panic(err)
		}
		if err := s.expect(context.Background(), i); err != nil {
			panic(err)
		}
		if i == 3 {
			say("busy", nil)
		}
	}
}

// lesson is how somebody learnt that the daemon is gone.
type lesson struct {
	Fatal bool
	At    time.Time
	Err   string
}

// watcher waits in all ways for something that never comes, and tells when it learns that the daemon is gone.
func watcher(socket string) {
	ctx := must(verbs.Open("", verbs.WithSocket(socket)))
	blocked, polling, waiting := newSide(ctx, 4096), newSide(ctx, 4096), newSide(ctx, 4096)
	learnt := func(how string, err error) {
		say(how, lesson{isFatal(err), time.Now(), err.Error()})
	}
	go func() {
		_, err := blocked.ch.GetEvent(context.Background())
		learnt("event", err)
	}()
	go func() {
		_, err := waiting.next(context.Background())
		learnt("wait", err)
	}()
	go func() {
		_, err := ctx.AsyncEvent(context.Background())
		learnt("async", err)
	}()
	go func() {
		var wc [4]verbs.WC
		for {
			if _, err := polling.cq.Poll(wc[:]); err != nil {
				learnt("poll", err)
				return
			}
		}
	}()
	time.Sleep(50 * time.Millisecond) // all are at it
	say("ready", nil)
}

// foreign is another user's application: it tries to register memory of its own.
func foreign(socket string) {
	ctx := must(verbs.Open("", verbs.WithSocket(socket)))
	pd := must(ctx.AllocPD())
	var a address
	if _, err := pd.RegMR(make([]byte, 8192), everything); err != nil {
		a.Err = err.Error()
	}
	say("own", a)
	a = address{}
	buf := must(pd.AllocBuffer(8192))
	if _, err := pd.RegMR(buf.Bytes(), everything); err != nil {
		a.Err = err.Error()
	}
	say("shared", a)
}
