package verbs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// member is a process of an XRC domain: a side with a shared receive queue in it.
type member struct {
	*side
	xrcd *verbs.XRCD
	srq  *verbs.SRQ
}

func newMember(s *side, attr verbs.XRCDAttr) *member {
	m := &member{side: s, xrcd: must(s.ctx.OpenXRCD(attr))}
	m.srq = must(s.pd.CreateXSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 2}, m.xrcd, s.cq))
	return m
}

func teamAttr() verbs.XRCDAttr { return verbs.XRCDAttr{Name: "team", Flags: ib.XRCDCreate} }

// newInitiator replaces the queue pair of a side by an initiator, and connects it with a target.
func newInitiator(t testing.TB, a, b *side, target *verbs.QP) {
	t.Helper()
	check(t, a.qp.Close())
	a.qp = must(a.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeXRCSend, SendCQ: a.cq, Cap: smallCap}))
	a.end.QPN = a.qp.QPN()
	far := verbs.Endpoint{QPN: target.QPN(), PSN: verbs.RandomPSN(), GID: b.end.GID}
	check(t, a.qp.ConnectRC(a.end, far, verbs.RCAttr{}))
	check(t, target.ConnectRC(far, a.end, verbs.RCAttr{}))
}

func (s *side) sendTo(srqn uint32, id uint64, n int) verbs.SendWR {
	wr := s.send(id, n)
	wr.RemoteSRQN = srqn
	return wr
}

// newXRC makes an initiator, and two contexts of one device that share a domain and a target.
func newXRC(t testing.TB) (a *side, b, c *member, target, opened *verbs.QP) {
	t.Helper()
	var net embedded.Network
	a = newSide(t, openDevice(t, embedded.Options{Network: &net}), 256, smallCap)
	d := must(newDevice(embedded.Options{Network: &net}))
	contexts := []*verbs.Context{must(d.Open()), must(d.Open())}
	t.Cleanup(func() {
		check(t, errors.Join(contexts[0].Close(), contexts[1].Close()))
		check(t, d.Close())
	})
	b = newMember(newSide(t, contexts[0], 256, smallCap), teamAttr())
	c = newMember(newSide(t, contexts[1], 256, smallCap), teamAttr())
	target = must(b.xrcd.CreateQP())
	opened = must(c.xrcd.OpenQP(target.QPN()))
	newInitiator(t, a, b.side, target)
	return a, b, c, target, opened
}

func TestXRC(t *testing.T) {
	a, b, c, target, opened := newXRC(t)
	if s := opened.State(); s != ib.StateRTS {
		t.Errorf("the target is in %s where it was opened", s)
	}
	for round := range uint64(20) {
		for _, m := range []*member{b, c} {
			check(t, m.srq.PostRecv(m.recv(round, 0, 100)))
			fill(a.buf.Bytes()[:100], round)
			check(t, a.qp.PostSend(a.sendTo(m.srq.Number(), round, 100)))
			a.expect(round, ib.WCSuccess)
			if wc := m.expect(round, ib.WCSuccess); wc.QPN != target.QPN() || wc.Opcode != ib.WCRecv || wc.ByteLen != 100 {
				t.Errorf("receive %+v", wc)
			}
			if !bytes.Equal(m.buf.Bytes()[:100], a.buf.Bytes()[:100]) {
				t.Error("wrong bytes")
			}
		}
	}
	// WRITE into the memory of the one, READ out of that of the other.
	wr := a.sendTo(b.srq.Number(), 1, 500)
	wr.Opcode, wr.RemoteAddr, wr.RKey = ib.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
	check(t, a.qp.PostSend(wr))
	a.expect(1, ib.WCSuccess)
	wr = a.sendTo(c.srq.Number(), 2, 500)
	wr.Opcode, wr.RemoteAddr, wr.RKey = ib.WRRDMARead, c.mr.Addr(), c.mr.RKey()
	check(t, a.qp.PostSend(wr))
	a.expect(2, ib.WCSuccess)

	// The maker closes, the other goes on.
	check(t, target.Close())
	check(t, c.srq.PostRecv(c.recv(7, 0, 64)))
	check(t, a.qp.PostSend(a.sendTo(c.srq.Number(), 7, 64)))
	a.expect(7, ib.WCSuccess)
	c.expect(7, ib.WCSuccess)

	// A queue that is not in the domain: remote access error, and whoever has the target hears of it.
	check(t, a.qp.PostSend(a.sendTo(0xfffff, 8, 64)))
	a.expect(8, ib.WCRemAccessErr)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for {
		e := must(c.ctx.AsyncEvent(ctx))
		if e.Type == ib.EventCommEst {
			continue
		}
		if e.Type != ib.EventQPAccessErr || e.QP != opened {
			t.Errorf("event %+v", e)
		}
		break
	}
	if s := opened.State(); s != ib.StateErr {
		t.Errorf("the target is in %s", s)
	}
}

func TestXRCRefuses(t *testing.T) {
	a, b, c, target, opened := newXRC(t)
	wantErrno(t, target.PostSend(b.send(1, 1)), syscall.EINVAL)
	wantErrno(t, target.PostRecv(b.recv(1, 0, 1)), syscall.EINVAL)
	wantErrno(t, a.qp.PostRecv(a.recv(1, 0, 1)), syscall.ENOMEM) // it has no receive queue
	wantErrno(t, b.xrcd.Close(), syscall.EBUSY)
	wantErrno(t, b.cq.Close(), syscall.EBUSY)
	if _, err := b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeXRCRecv, SendCQ: b.cq, RecvCQ: b.cq}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a target of a protection domain: %v", err)
	}
	if _, err := b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: b.srq}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RC with an XRC shared receive queue: %v", err)
	}
	if _, err := b.pd.CreateXSRQ(verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}, c.xrcd, b.cq); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the domain of another context: %v", err)
	}
	if _, err := b.xrcd.OpenQP(a.qp.QPN()); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no target: %v", err)
	}
	open := func(attr verbs.XRCDAttr) error {
		x, err := b.ctx.OpenXRCD(attr)
		if err == nil {
			check(t, x.Close())
			wantErrno(t, x.Close(), syscall.EBADF)
		}
		return err
	}
	wantErrno(t, open(verbs.XRCDAttr{}), syscall.EINVAL)
	check(t, open(verbs.XRCDAttr{Flags: ib.XRCDCreate}))
	wantErrno(t, open(verbs.XRCDAttr{Name: "nobody's"}), syscall.EAGAIN)
	wantErrno(t, open(verbs.XRCDAttr{Name: "team", Flags: ib.XRCDCreate | ib.XRCDExclusive}), syscall.EINVAL)
	wantErrno(t, open(verbs.XRCDAttr{Name: strings.Repeat("x", 64), Flags: ib.XRCDCreate}), syscall.EINVAL)
	f := must(os.Create(filepath.Join(t.TempDir(), "domain")))
	defer f.Close()
	wantErrno(t, open(verbs.XRCDAttr{File: f}), syscall.EAGAIN)
	wantErrno(t, open(verbs.XRCDAttr{File: f, Name: "team", Flags: ib.XRCDCreate}), syscall.EINVAL)
	first := must(b.ctx.OpenXRCD(verbs.XRCDAttr{File: f, Flags: ib.XRCDCreate | ib.XRCDExclusive}))
	again := must(os.Open(f.Name()))
	defer again.Close()
	check(t, open(verbs.XRCDAttr{File: again}))
	check(t, first.Close())
	check(t, errors.Join(opened.Close(), target.Close(), b.srq.Close(), b.xrcd.Close()))
	wantErrno(t, opened.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState), syscall.EINVAL)
}

// runXRC is a member of a domain in a process of its own: it says the number of its queue, opens the target, and repeats
// what it receives on its standard output.
func runXRC(path string) {
	ctx := must(verbs.Open("", verbs.WithSocket(path)))
	attr := verbs.XRCDAttr{Name: os.Getenv("SOFTNIC_TEST_XRC_NAME")}
	if name := os.Getenv("SOFTNIC_TEST_XRC_FILE"); name != "" {
		attr.File = must(os.Open(name))
	}
	t := &testing.T{}
	m := newMember(newSide(t, ctx, 64, smallCap), attr)
	var qpn uint32
	must(fmt.Sscan(os.Getenv("SOFTNIC_TEST_XRC_QPN"), &qpn))
	target := must(m.xrcd.OpenQP(ib.QPN(qpn)))
	for i := range uint64(8) {
		check(t, m.srq.PostRecv(m.recv(i, int(i)*64, 64)))
	}
	fmt.Println(m.srq.Number(), target.State())
	for {
		var wc [1]verbs.WC
		if _, err := m.cq.Wait(context.Background(), wc[:]); err != nil || wc[0].Status != ib.WCSuccess || wc[0].QPN != target.QPN() {
			panic(fmt.Sprintf("%+v, %v", wc, err))
		}
		off := int(wc[0].WRID) * 64
		fmt.Println(string(m.buf.Bytes()[off : off+int(wc[0].ByteLen)]))
		check(t, m.srq.PostRecv(m.recv(wc[0].WRID, off, 64)))
	}
}

// Processes share a domain, by a name and by a file, and a target, which outlives its maker.
func TestXRCProcesses(t *testing.T) {
	for _, by := range []string{"name", "file"} {
		t.Run(by, func(t *testing.T) {
			_, path := spawnDaemon(t)
			ctx := openSocket(t, path)
			attr := teamAttr()
			env := []string{"SOFTNIC_TEST_ROLE=xrc", "SOFTNIC_TEST_SOCKET=" + path, "SOFTNIC_TEST_XRC_NAME=team"}
			if by == "file" {
				attr = verbs.XRCDAttr{File: must(os.Create(filepath.Join(t.TempDir(), "domain"))), Flags: ib.XRCDCreate}
				defer attr.File.Close()
				env[2] = "SOFTNIC_TEST_XRC_FILE=" + attr.File.Name()
			}
			a, b := newSide(t, openSocket(t, path), 64, smallCap), newMember(newSide(t, ctx, 64, smallCap), attr)
			target := must(b.xrcd.CreateQP())
			newInitiator(t, a, b.side, target)
			env = append(env, fmt.Sprint("SOFTNIC_TEST_XRC_QPN=", uint32(target.QPN())))

			var numbers [2]uint32
			var out [2]*bufio.Reader
			var procs [2]*exec.Cmd
			for i := range procs {
				cmd := exec.Command("/proc/self/exe")
				cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
				pipe := must(cmd.StdoutPipe())
				check(t, cmd.Start())
				t.Cleanup(func() {
					cmd.Process.Kill()
					cmd.Wait()
				})
				procs[i], out[i] = cmd, bufio.NewReader(pipe)
				var state string
				must(fmt.Fscanln(out[i], &numbers[i], &state))
				if state != "RTS" {
					t.Fatalf("process %d sees the target in %s", i, state)
				}
			}
			say := func(i int, text string) {
				t.Helper()
				copy(a.buf.Bytes(), text)
				check(t, a.qp.PostSend(a.sendTo(numbers[i], 1, len(text))))
				a.expect(1, ib.WCSuccess)
				if line := must(out[i].ReadString('\n')); line != text+"\n" {
					t.Fatalf("process %d received %q, not %q", i, line, text)
				}
			}
			for round := range 3 {
				say(0, fmt.Sprint("to the first ", round))
				say(1, fmt.Sprint("to the second ", round))
			}
			// The maker goes, and one process is killed: the other has the target still.
			check(t, b.ctx.Close())
			check(t, procs[0].Process.Kill())
			procs[0].Wait()
			say(1, "still there")
		})
	}
}
