package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// The services of `softnicd perf`. What is sent on the unreliable ones may be lost, and nobody says so: messages are counted
// where they arrive, and no test of them waits for one for ever.

// perfQKey is the Q_Key of perftest's datagrams.
const perfQKey ib.QKey = 0x11111111

// perfDatagram is the size of a datagram unless another is asked for: what every network with Ethernet's MTU carries.
const perfDatagram = 1024

// perfStray is how long the receiver of messages that may be lost waits for another once its peer is done.
const perfStray = 200 * time.Millisecond

// perfLost is how long a latency test waits for a message that may be lost.
const perfLost = 2 * time.Second

func (p *perfPlan) reliable() bool { return p.Service == "" || p.Service == "rc" || p.extended() }

// extended tells whether each connection is the two halves of XRC: a queue pair that sends, a target that receives into a
// shared receive queue of the lane's.
func (p *perfPlan) extended() bool { return p.Service == "xrc" }

func (p *perfPlan) datagrams() bool { return p.Service == "ud" }

func (p *perfPlan) qpType() ib.QPType {
	switch p.Service {
	case "uc":
		return ib.QPTypeUC
	case "ud":
		return ib.QPTypeUD
	case "xrc":
		return ib.QPTypeXRCSend
	}
	return ib.QPTypeRC
}

// received is the bytes that a message takes where it arrives: a datagram has the network header in front.
func (p *perfPlan) received() int {
	if p.datagrams() {
		return p.Size + verbs.GRHSize
	}
	return p.Size
}

// checkService refuses what a service does not have.
func (p *perfPlan) checkService() error {
	switch op := p.definition.op; {
	case p.reliable():
		return nil
	case p.Service != "uc" && p.Service != "ud":
		return fmt.Errorf("--service %s: rc, uc, ud or xrc expected", p.Service)
	case op != ib.WRSend && op != ib.WRRDMAWrite, op == ib.WRRDMAWrite && p.datagrams():
		return fmt.Errorf("--service %s has no %s", p.Service, p.Test)
	case p.Verify:
		return fmt.Errorf("--service %s may lose messages: --verify does not apply", p.Service)
	case p.datagrams() && p.MTU != 0:
		return errors.New("a datagram is one packet of the port's MTU: --mtu does not apply")
	case p.datagrams() && p.Size > 4096:
		return fmt.Errorf("--size %d: a datagram is one packet, of 4096 bytes at most", p.Size)
	}
	return nil
}

// openXRC makes what a lane of XRC receives with.
func (l *perfLane) openXRC(p *perfPeer, pd *verbs.PD) (err error) {
	if p.xrcd == nil {
		if p.xrcd, err = p.ctx.OpenXRCD(verbs.XRCDAttr{Flags: ib.XRCDCreate}); err != nil {
			return err
		}
	}
	if l.target, err = p.xrcd.CreateQP(); err != nil {
		return err
	}
	// Every message names a queue, also those that take nothing out of it.
	l.srq, err = pd.CreateXSRQ(verbs.SRQAttr{MaxWR: uint32(p.plan.RxDepth), MaxSGE: 1}, p.xrcd, p.cq)
	return err
}

// connectLane brings a queue pair up, and with XRC its target.
func (p *perfPeer) connectLane(pd *verbs.PD, l *perfLane, local, remote *perfSide) error {
	if !p.plan.extended() {
		return p.connectQP(pd, l, local.QPs[l.index], remote.QPs[l.index])
	}
	l.srqn = remote.SRQs[l.index]
	attr := p.plan.rcAttr()
	return errors.Join(l.qp.ConnectRC(local.QPs[l.index], remote.Targets[l.index], attr),
		l.target.ConnectRC(local.Targets[l.index], remote.QPs[l.index], attr))
}

func (p *perfPeer) connectQP(pd *verbs.PD, l *perfLane, local, remote verbs.Endpoint) error {
	switch p.plan.Service {
	case "uc":
		return l.qp.ConnectUC(local, remote, verbs.UCAttr{PathMTU: p.plan.pathMTU()})
	case "ud":
		port, err := p.ctx.QueryPort(1)
		if err != nil {
			return err
		}
		if p.plan.Size > port.ActiveMTU.Bytes() {
			return fmt.Errorf("--size %d: the port's MTU is %d, and a datagram is one packet", p.plan.Size, port.ActiveMTU.Bytes())
		}
		if err := l.qp.ActivateUD(verbs.UDAttr{QKey: perfQKey, PSN: local.PSN}); err != nil {
			return err
		}
		l.peer = remote.QPN
		l.ah, err = pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: remote.GID}})
		return err
	}
	return l.qp.ConnectRC(local, remote, p.plan.rcAttr())
}

// stray tells whether what has not arrived will not any more.
func (s *stream) stray() bool {
	if s.plan.reliable() {
		return false
	}
	if s.heard.IsZero() {
		s.heard = time.Now()
	}
	return time.Since(s.heard) > perfStray
}

// lost is the end of a latency test whose message was lost.
func (g *pingPong) lost(began time.Time) error {
	if !g.plan.reliable() && time.Since(began) > perfLost {
		return errors.New("a message was lost, which this service does not repair")
	}
	return nil
}
