package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// A crowd is applications that have connected their queue pairs and do nothing: what they cost is what is measured. They
// are in one process of their own.
type crowd struct {
	Socket   string
	Contexts int
	QPs      int  // of all contexts together; an even number in each
	Used     bool // each has sent and received as much as its rings hold
}

// hosted is a crowd at its daemon.
type hosted struct {
	daemon *daemon
	pid    int
	leave  func()
}

// crowd returns a daemon with a crowd, the one that is there already if it is the same.
func (s *suite) crowd(c crowd) (*hosted, error) {
	if h := s.crowds[c]; h != nil {
		return h, nil
	}
	d, err := s.daemon(s.fresh())
	if err != nil {
		return nil, err
	}
	key := c
	c.Socket = d.socket
	pid, disperse, err := c.gather()
	if err != nil {
		d.stop()
		return nil, err
	}
	h := &hosted{daemon: d, pid: pid}
	h.leave = func() {
		delete(s.crowds, key)
		disperse()
		d.stop()
	}
	s.crowds[key] = h
	return h, nil
}

// crowdDepth is how many entries both queues of an idle queue pair have.
const crowdDepth = 64

// gather starts the crowd and returns when all of it is connected. What it returns sends them home.
func (c *crowd) gather() (pid int, disperse func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return 0, nil, err
	}
	child := exec.Command(self, "child", "crowd")
	child.Stderr = os.Stderr
	child.Env = append(os.Environ(), crowdVariable+"="+string(text))
	in, err := child.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := child.Start(); err != nil {
		return 0, nil, err
	}
	disperse = func() {
		in.Close()
		_ = child.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && line != crowdReady+"\n" {
		err = errors.New(strings.TrimSpace(line)) // what crowdMain could not do
	}
	if err != nil {
		disperse()
		return 0, nil, fmt.Errorf("the applications did not get ready: %w", err)
	}
	return child.Process.Pid, disperse, nil
}

const (
	crowdVariable = "SOFTNICD_BENCH_CROWD"
	crowdReady    = "ready"
)

// crowdMain is the crowd's process. It ends when its standard input does.
func crowdMain() {
	var c crowd
	err := json.Unmarshal([]byte(os.Getenv(crowdVariable)), &c)
	for i := 0; i < c.Contexts && err == nil; i++ {
		err = c.join(c.QPs / c.Contexts)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(crowdReady)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// join is one application: it connects its queue pairs with each other.
func (c *crowd) join(qps int) error {
	ctx, err := verbs.Open("", verbs.WithSocket(c.Socket))
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(256)
	if err != nil {
		return err
	}
	gid, err := ctx.QueryGID(1, 0)
	if err != nil {
		return err
	}
	buffer, err := pd.AllocBuffer(os.Getpagesize())
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(buffer.Bytes(), ib.AccessLocalWrite)
	if err != nil {
		return err
	}
	for range qps / 2 {
		var pair [2]*verbs.QP
		var ends [2]verbs.Endpoint
		for i := range pair {
			pair[i], err = pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq,
				Cap: verbs.QPCap{MaxSendWR: crowdDepth, MaxRecvWR: crowdDepth, MaxSendSGE: 1, MaxRecvSGE: 1}})
			if err != nil {
				return err
			}
			ends[i] = verbs.Endpoint{QPN: pair[i].QPN(), PSN: verbs.RandomPSN(), GID: gid.GID}
		}
		for i := range pair {
			if err := pair[i].ConnectRC(ends[i], ends[1-i], verbs.RCAttr{}); err != nil {
				return err
			}
		}
		if !c.Used {
			continue
		}
		for i := range pair {
			if err := fill(pair[i], pair[1-i], cq, mr); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill sends as many messages as there are entries, and sees all of them arrive.
func fill(from, to *verbs.QP, cq *verbs.CQ, mr *verbs.MR) error {
	list := []verbs.SGE{mr.SGE(0, 8)}
	for range crowdDepth {
		if err := to.PostRecv(verbs.RecvWR{SGList: list}); err != nil {
			return err
		}
	}
	for range crowdDepth {
		if err := from.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: list}); err != nil {
			return err
		}
	}
	var wc [16]verbs.WC
	end := time.Now().Add(patience)
	for n := 0; n < 2*crowdDepth; {
		got, err := cq.Poll(wc[:])
		if err != nil {
			return err
		}
		n += got
		for i := range wc[:got] {
			if wc[i].Status != ib.WCSuccess {
				return fmt.Errorf("a message: %v", wc[i].Status)
			}
		}
		if got == 0 && time.Now().After(end) {
			return errors.New("messages do not arrive")
		}
	}
	return nil
}
