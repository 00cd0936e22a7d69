package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
)

// theirs is the side of rxe: testdata/peer.py in the machine, told what to do over TCP.
type theirs struct {
	conn net.Conn
	in   *bufio.Reader
}

var _ side = (*theirs)(nil)

const peerPort = 18700

// newTheirs starts the program in the machine if it does not run, and opens the GID of an address family.
func newTheirs(t *testing.T, m *machine, v6 bool) *theirs {
	t.Helper()
	p := &theirs{}
	var err error
	if p.conn, err = m.dial(); err != nil {
		m.push(t, "testdata/peer.py", "/peer.py")
		m.run(t, fmt.Sprintf("python3 /peer.py %d > /peer.log 2>&1 < /dev/null &", peerPort))
		for late := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
			if p.conn, err = m.dial(); err == nil {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("the peer does not listen: %v\n%s", err, m.run(t, "cat /peer.log"))
			}
		}
	}
	t.Cleanup(func() { p.conn.Close() })
	p.in = bufio.NewReader(p.conn)
	// The machine's table: link-local, IPv4, IPv6.
	gid := 1
	if v6 {
		gid = 2
	}
	if err := p.call("open", map[string]any{"gid": gid, "size": memory}, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// dial connects from the namespace of the bridge.
func (m *machine) dial() (conn net.Conn, err error) {
	err = m.inside(func() error {
		var err error
		conn, err = net.DialTimeout("tcp4", netip.AddrPortFrom(machine4, peerPort).String(), 5*time.Second)
		return err
	})
	return conn, err
}

// inside runs f in the namespace of the bridge.
func (m *machine) inside(f func() error) error {
	ns, err := os.Open("/run/netns/" + m.namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	return nettest.Inside(int(ns.Fd()), f)
}

// watch asks the machine for a connection that it refuses, again and again, until the caller wants to know how long it took at
// most to say so.
func (m *machine) watch() (silence func() time.Duration) {
	const nobodys = 1 // a port without a listener
	ctx, cancel := context.WithCancel(context.Background())
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		_ = m.inside(func() error {
			d := net.Dialer{Timeout: 5 * time.Second}
			for ctx.Err() == nil {
				begun := time.Now()
				if c, err := d.DialContext(ctx, "tcp4", netip.AddrPortFrom(machine4, nobodys).String()); err == nil {
					c.Close()
				}
				if ctx.Err() == nil {
					most = max(most, time.Since(begun))
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
		longest <- most
	}()
	return func() time.Duration {
		cancel()
		return <-longest
	}
}

// call has the peer do something.
func (p *theirs) call(op string, args map[string]any, result any) error {
	m := map[string]any{"op": op}
	maps.Copy(m, args)
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_ = p.conn.SetDeadline(time.Now().Add(2 * patience))
	if _, err := p.conn.Write(append(line, '\n')); err != nil {
		return err
	}
	if line, err = p.in.ReadBytes('\n'); err != nil {
		return fmt.Errorf("peer, %s: %w", op, err)
	}
	var answer struct {
		OK    json.RawMessage
		Error string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New("peer, " + op + ": " + answer.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.OK, result)
}

func (p *theirs) make(kind string, shared bool) (e endpoint, err error) {
	return e, p.call("make", map[string]any{"kind": kind, "shared": shared}, &e)
}

func (p *theirs) connect(peer endpoint, a attr) error {
	return p.call("connect", map[string]any{"peer": peer, "mtu": a.mtu, "sq_psn": a.sqPSN, "rq_psn": a.rqPSN, "timeout": a.timeout,
		"retry": a.retry, "rnr_retry": a.rnrRetry, "rnr_timer": a.rnrTimer}, nil)
}

func (p *theirs) fill(at, n int, seed string) error {
	return p.call("fill", map[string]any{"at": at, "length": n, "seed": seed}, nil)
}

func (p *theirs) clear(at, n int) error {
	return p.call("clear", map[string]any{"at": at, "length": n}, nil)
}

func (p *theirs) sum(at, n int) (s string, err error) {
	return s, p.call("sum", map[string]any{"at": at, "length": n}, &s)
}

func (p *theirs) word(at int) (v uint64, err error) {
	return v, p.call("word", map[string]any{"at": at}, &v)
}

func (p *theirs) setWord(at int, v uint64) error {
	return p.call("set_word", map[string]any{"at": at, "value": v}, nil)
}

func (p *theirs) recv(n, at, length int, later time.Duration) error {
	return p.call("recv", map[string]any{"n": n, "at": at, "length": length, "wait_ms": later.Milliseconds()}, nil)
}

func (p *theirs) post(w work) error { return p.call("post", map[string]any{"w": w}, nil) }

func (p *theirs) poll(n int, wait time.Duration) (c []completion, err error) {
	return c, p.call("poll", map[string]any{"n": n, "seconds": wait.Seconds()}, &c)
}

func (p *theirs) bind(at, n int) (k ib.RKey, err error) {
	return k, p.call("bind", map[string]any{"at": at, "length": n}, &k)
}

func (p *theirs) unbind() error { return p.call("unbind", nil, nil) }
