package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// The applications of the demo are ordinary programs: they use package verbs and, to find each other, a socket of their
// own, as pingpong programs do.

// Sizes of the conversation, in bytes.
const (
	sendBytes     = 4096
	sendImmBytes  = 64
	writeBytes    = 9000 // three packets at a path MTU of 4096
	writeImmBytes = 3000
)

// Where things are in the memory of each application.
const (
	outgoing    = 0       // what is sent and written
	incoming    = 1 << 16 // receives
	writeTarget = 2 << 16
	immTarget   = 3 << 16
	readSource  = 4 << 16
	readTarget  = 5 << 16
	atomicWord  = 6 << 16
	atomicSlot  = 6<<16 + 64
	memoryBytes = 7 << 16
)

const (
	sendImm     = 0x11223344
	writeImm    = 0x55667788
	atomicStart = 1000
	atomicSwap  = 5000
	atomicAdd   = 42
	wrongKey    = 0x0badf00d
)

var accessEvent = ib.EventQPAccessErr.Name()

// pattern is byte i of a message.
func pattern(seed byte, i int) byte { return byte(i*7) + byte(i>>8)*13 + seed }

func newDemoApp() *cobra.Command {
	var role, device, socket, exchange, mr string
	c := &cobra.Command{
		Use:    "demo-app",
		Short:  "One side of the demo",
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			a := &app{report: &appReport{Role: role, Device: device, Differences: []string{}, Events: []string{}}}
			defer a.close()
			if err := a.open(device, socket, mr); err != nil {
				return err
			}
			if err := a.meet(role, exchange); err != nil {
				return err
			}
			talk := a.send
			if role == "receiver" {
				talk = a.receive
			}
			if err := talk(c.Context()); err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(a.report)
		},
	}
	f := c.Flags()
	f.StringVar(&role, "role", "", "sender or receiver")
	f.StringVar(&device, "device", "", "device to open")
	f.StringVar(&socket, "socket", "", "the daemon's control socket")
	f.StringVar(&exchange, "exchange", "", "where the two meet")
	f.StringVar(&mr, "mr", "shared", "shared or process")
	return c
}

// app is one side of the conversation.
type app struct {
	ctx     *verbs.Context
	pd      *verbs.PD
	mem     []byte
	unmap   func()
	mr      *verbs.MR
	cq      *verbs.CQ
	qp      *verbs.QP
	peer    *net.UnixConn
	remote  hello
	posted  map[uint64]time.Time
	report  *appReport
	scratch [16]verbs.WC
}

// hello is what the two tell each other out of band.
type hello struct {
	QPN  ib.QPN
	PSN  ib.PSN
	GID  ib.GID
	RKey ib.RKey
	Addr uint64
}

func (a *app) open(device, socket, mr string) (err error) {
	a.posted = map[uint64]time.Time{}
	if a.ctx, err = verbs.Open(device, verbs.WithSocket(socket)); err != nil {
		return err
	}
	if a.pd, err = a.ctx.AllocPD(); err != nil {
		return err
	}
	if mr == "process" {
		// Memory of our own, which the device reaches through the operating system.
		a.mem, err = unix.Mmap(-1, 0, memoryBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		a.unmap = func() { _ = unix.Munmap(a.mem) }
	} else {
		var b *verbs.Buffer
		if b, err = a.pd.AllocBuffer(memoryBytes); err == nil {
			a.mem = b.Bytes()
		}
	}
	if err != nil {
		return err
	}
	access := ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic
	if a.mr, err = a.pd.RegMR(a.mem, access); err != nil {
		return err
	}
	if a.cq, err = a.ctx.CreateCQ(1024); err != nil {
		return err
	}
	a.qp, err = a.pd.CreateQP(verbs.QPInitAttr{
		Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// meet exchanges addresses with the peer and connects.
func (a *app) meet(role, path string) error {
	local := hello{QPN: a.qp.QPN(), PSN: verbs.RandomPSN(), RKey: a.mr.RKey(), Addr: a.mr.Addr()}
	gid, err := a.ctx.QueryGID(1, 0)
	if err != nil {
		return err
	}
	local.GID = gid.GID
	a.report.GID, a.report.QPN, a.report.CQCapacity = local.GID.Addr().String(), uint32(local.QPN), uint32(a.cq.Capacity())
	if a.peer, err = rendezvous(role, path); err != nil {
		return fmt.Errorf("find the peer: %w", err)
	}
	if err := json.NewEncoder(a.peer).Encode(local); err != nil {
		return err
	}
	if err := json.NewDecoder(&oneMessage{a.peer}).Decode(&a.remote); err != nil {
		return fmt.Errorf("hear from the peer: %w", err)
	}
	return a.qp.ConnectRC(
		verbs.Endpoint{QPN: local.QPN, PSN: local.PSN, GID: local.GID},
		verbs.Endpoint{QPN: a.remote.QPN, PSN: a.remote.PSN, GID: a.remote.GID}, verbs.RCAttr{})
}

// rendezvous joins the two by a packet socket: the receiver listens.
func rendezvous(role, path string) (*net.UnixConn, error) {
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	if role == "receiver" {
		l, err := net.ListenUnix("unixpacket", addr)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_ = l.SetDeadline(time.Now().Add(demoLimit))
		return l.AcceptUnix()
	}
	for end := time.Now().Add(demoLimit); ; time.Sleep(2 * time.Millisecond) {
		c, err := net.DialUnix("unixpacket", nil, addr)
		if err == nil || time.Now().After(end) {
			return c, err
		}
	}
}

// oneMessage reads from a packet socket without reading ahead.
type oneMessage struct{ c *net.UnixConn }

func (m *oneMessage) Read(b []byte) (int, error) { return m.c.Read(b) }

// tell and hear keep the two in step.
func (a *app) tell(step string) error {
	_, err := a.peer.Write([]byte(step))
	return err
}

func (a *app) hear(step string) error {
	var b [64]byte
	_ = a.peer.SetReadDeadline(time.Now().Add(demoLimit))
	n, err := a.peer.Read(b[:])
	if err != nil {
		return fmt.Errorf("wait for %q from the peer: %w", step, err)
	}
	if string(b[:n]) != step {
		return fmt.Errorf("the peer is at %q, expected %q", b[:n], step)
	}
	return nil
}

// send is the sender's side.
func (a *app) send(ctx context.Context) error {
	if err := a.hear("receives posted"); err != nil {
		return err
	}
	steps := []struct {
		wr   verbs.SendWR
		seed byte
		size int
	}{
		{verbs.SendWR{WRID: 1, Opcode: ib.WRSend}, 1, sendBytes},
		{verbs.SendWR{WRID: 2, Opcode: ib.WRSendWithImm, ImmData: sendImm, Flags: ib.SendSolicited}, 2, sendImmBytes},
		{verbs.SendWR{WRID: 3, Opcode: ib.WRRDMAWrite, RemoteAddr: writeTarget}, 3, writeBytes},
		{verbs.SendWR{WRID: 4, Opcode: ib.WRRDMAWriteWithImm, RemoteAddr: immTarget, ImmData: writeImm}, 4, writeImmBytes},
	}
	for _, s := range steps {
		for i := range s.size {
			a.mem[outgoing+i] = pattern(s.seed, i)
		}
		s.wr.SGList = []verbs.SGE{a.mr.SGE(outgoing, s.size)}
		if err := a.postAndPoll(ctx, s.wr); err != nil {
			return err
		}
		if s.wr.WRID == 2 {
			// The third receive is for the WRITE with immediate.
			if err := a.hear("1003 reposted"); err != nil {
				return err
			}
		}
	}
	if err := a.readAndAtomics(ctx); err != nil {
		return err
	}
	if err := a.tell("all written"); err != nil {
		return err
	}
	if err := a.hear("verified"); err != nil {
		return err
	}
	return a.provoke(ctx)
}

func (a *app) readAndAtomics(ctx context.Context) error {
	read := verbs.SendWR{WRID: 5, Opcode: ib.WRRDMARead, RemoteAddr: readSource, SGList: []verbs.SGE{a.mr.SGE(readTarget, writeBytes)}}
	if err := a.postAndPoll(ctx, read); err != nil {
		return err
	}
	a.verify("READ", readTarget, 5, writeBytes)

	slot := []verbs.SGE{a.mr.SGE(atomicSlot, 8)}
	cas := verbs.SendWR{WRID: 6, Opcode: ib.WRAtomicCmpAndSwp, RemoteAddr: atomicWord, CompareAdd: atomicStart, Swap: atomicSwap, SGList: slot}
	if err := a.postAndPoll(ctx, cas); err != nil {
		return err
	}
	a.verifyWord("compare-and-swap returned", atomicSlot, atomicStart)
	faa := verbs.SendWR{WRID: 7, Opcode: ib.WRAtomicFetchAdd, RemoteAddr: atomicWord, CompareAdd: atomicAdd, SGList: slot}
	if err := a.postAndPoll(ctx, faa); err != nil {
		return err
	}
	a.verifyWord("fetch-and-add returned", atomicSlot, atomicSwap)
	return nil
}

// provoke ends the connection on purpose: a write with a key that does not exist, and two sends behind it.
func (a *app) provoke(ctx context.Context) error {
	payload := []verbs.SGE{a.mr.SGE(outgoing, 64)}
	bad := verbs.SendWR{WRID: 8, Opcode: ib.WRRDMAWrite, RemoteAddr: a.remote.Addr, RKey: wrongKey, SGList: payload}
	flushed := verbs.SendWR{WRID: 9, Opcode: ib.WRSend, SGList: payload}
	last := verbs.SendWR{WRID: 10, Opcode: ib.WRSend, SGList: payload}
	if err := a.post(bad, flushed, last); err != nil {
		return err
	}
	return a.poll(ctx, 3)
}

// receive is the receiver's side.
func (a *app) receive(ctx context.Context) error {
	for i := range writeBytes {
		a.mem[readSource+i] = pattern(5, i)
	}
	binary.NativeEndian.PutUint64(a.mem[atomicWord:], atomicStart)
	if err := a.postRecv(1001, 1002); err != nil {
		return err
	}
	if err := a.tell("receives posted"); err != nil {
		return err
	}
	if err := a.poll(ctx, 2); err != nil {
		return err
	}
	a.verify("SEND", incoming, 1, sendBytes)
	a.verify("SEND with immediate", incoming+sendBytes, 2, sendImmBytes)
	a.verifyImm(1, sendImm)
	if err := a.postRecv(1003); err != nil {
		return err
	}
	if err := a.tell("1003 reposted"); err != nil {
		return err
	}
	if err := a.poll(ctx, 1); err != nil {
		return err
	}
	a.verifyImm(2, writeImm)
	if err := a.hear("all written"); err != nil {
		return err
	}
	a.verify("RDMA WRITE", writeTarget, 3, writeBytes)
	a.verify("WRITE with immediate", immTarget, 4, writeImmBytes)
	a.verifyWord("after both atomics the word", atomicWord, atomicSwap+atomicAdd)
	if err := a.postRecv(1004, 1005); err != nil {
		return err
	}
	if err := a.tell("verified"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, demoLimit/2)
	defer cancel()
	// The first packet in RTR may have raised COMM_EST before.
	for {
		e, err := a.ctx.AsyncEvent(limited)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", accessEvent, err)
		}
		a.report.Events = append(a.report.Events, e.Type.Name())
		if e.Type == ib.EventQPAccessErr {
			break
		}
	}
	return a.poll(ctx, 2)
}

// post posts requests; remote addresses are offsets into the peer's memory unless a key was given.
func (a *app) post(wrs ...verbs.SendWR) error {
	for i := range wrs {
		if wrs[i].RKey == 0 {
			wrs[i].RemoteAddr += a.remote.Addr
			wrs[i].RKey = a.remote.RKey
		}
		a.posted[wrs[i].WRID] = time.Now()
	}
	return a.qp.PostSend(wrs...)
}

func (a *app) postAndPoll(ctx context.Context, wr verbs.SendWR) error {
	if err := a.post(wr); err != nil {
		return err
	}
	return a.poll(ctx, 1)
}

// postRecv posts receives, each behind the one before in memory.
func (a *app) postRecv(ids ...uint64) error {
	for _, id := range ids {
		at := incoming + int(id-1001)*sendBytes
		a.posted[id] = time.Now()
		if err := a.qp.PostRecv(verbs.RecvWR{WRID: id, SGList: []verbs.SGE{a.mr.SGE(at, sendBytes)}}); err != nil {
			return err
		}
	}
	return nil
}

// poll takes n completions and notes them.
func (a *app) poll(ctx context.Context, n int) error {
	for n > 0 {
		got, err := a.cq.Poll(a.scratch[:min(n, len(a.scratch))])
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, wc := range a.scratch[:got] {
			row := completionRow{
				WRID: wc.WRID, Status: wc.Status.String(), Code: uint8(wc.Status), QPN: uint32(wc.QPN),
				Took: time.Since(a.posted[wc.WRID]),
			}
			if wc.Status == ib.WCSuccess {
				row.Opcode = wc.Opcode.String()
				row.ByteLen = wc.ByteLen
				if wc.Flags&ib.WCWithImm != 0 {
					row.Imm = &wc.ImmData
				}
			}
			a.report.Completions = append(a.report.Completions, row)
		}
		n -= got
	}
	return nil
}

func (a *app) differ(format string, args ...any) {
	a.report.Differences = append(a.report.Differences, a.report.Role+": "+fmt.Sprintf(format, args...))
}

// verify compares every byte of a message.
func (a *app) verify(what string, at int, seed byte, n int) {
	for i, b := range a.mem[at : at+n] {
		if want := pattern(seed, i); b != want {
			a.differ("%s: byte %d is %#02x, expected %#02x", what, i, b, want)
			return
		}
	}
	a.report.BytesVerified += n
}

func (a *app) verifyWord(what string, at int, want uint64) {
	if got := binary.NativeEndian.Uint64(a.mem[at:]); got != want {
		a.differ("%s %d, expected %d", what, got, want)
		return
	}
	a.report.BytesVerified += 8
}

func (a *app) verifyImm(completion int, want uint32) {
	if imm := a.report.Completions[completion].Imm; imm == nil || *imm != want {
		a.differ("completion %d has no immediate %#x", completion, want)
	}
}

func (a *app) close() {
	if a.peer != nil {
		a.peer.Close()
	}
	if a.ctx != nil {
		if err := a.ctx.Close(); err != nil && !errors.Is(err, syscall.EPIPE) {
			fmt.Fprintln(os.Stderr, "close the device:", err)
		}
	}
	if a.unmap != nil {
		a.unmap()
	}
}
