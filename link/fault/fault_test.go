package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

const ms = clock.Time(time.Millisecond)

// foreign is a port whose packets come back as if from the network: parsed, with memory that the next Recv reuses.
type foreign struct {
	*local.Port
	from  []wire.Packet
	bytes [][]byte
}

func newForeign(n int) *foreign {
	return &foreign{Port: local.New(n), from: make([]wire.Packet, n), bytes: make([][]byte, n)}
}

func (f *foreign) Recv(now clock.Time, packets []wire.Packet) int {
	n := f.Port.Recv(now, f.from[:min(len(f.from), len(packets))])
	for i := range n {
		g := &f.from[i]
		// An earlier packet that somebody still looks at is spoilt by this.
		clear(f.bytes[i])
		b, err := g.AppendTo(f.bytes[i][:0], 0)
		f.bytes[i] = b
		if err != nil || wire.Parse(&packets[i], &wire.Datagram{Bytes: b, Source: g.Source, Dest: g.Dest,
			SourcePort: g.SourcePort, IDKnown: true}) != wire.Accepted {
			panic("a packet of our own is refused")
		}
	}
	return n
}

var route = &wire.Path{SourcePort: 50000}

func body(psn uint32) []byte { return bytes.Repeat([]byte{byte(psn)}, 100) }

func put(t testing.TB, out *wire.Burst, op wire.Opcode, psn uint32) {
	t.Helper()
	f := out.Next()
	if f == nil {
		t.Fatal("the burst is full")
	}
	f.Path, f.QPN, f.Stable = route, 0x11, true
	f.SetHeader(op)
	f.BTH().SetDestQP(0x22)
	f.BTH().SetPSN(ib.NewPSN(psn))
	f.Add(&wire.Buffer{B: body(psn)}, 0, 100)
}

// send sends everything in the burst and drops what is faulty, as a shard does.
func send(t testing.TB, p nic.Port, now clock.Time, out *wire.Burst) {
	t.Helper()
	for limit := 100; out.Len() > 0; limit-- {
		n, err := p.Send(now, out.Frames())
		out.Consume(n)
		if err != nil {
			if !isFrameFault(err) {
				t.Fatal(err)
			}
			out.Consume(1)
		}
		if limit == 0 {
			t.Fatal("the port stays congested")
		}
	}
}

// recv receives until a call leaves room, and returns the PSNs. It checks the bytes of each packet that is not marked.
func recv(t testing.TB, p nic.Port, now clock.Time, room int) (psns []uint32) {
	t.Helper()
	packets := make([]wire.Packet, room)
	for limit := 100; limit > 0; limit-- {
		n := p.Recv(now, packets)
		for i := range packets[:n] {
			g := &packets[i]
			psns = append(psns, uint32(g.PSN()))
			var b []byte
			for _, piece := range g.Payload {
				b = append(b, piece.Mem.Bytes(piece.Off, piece.Len)...)
			}
			if !bytes.Equal(b, body(uint32(g.PSN()))) {
				t.Errorf("packet %d has other bytes: % x", g.PSN(), b)
			}
		}
		if n < room {
			return psns
		}
	}
	t.Fatal("packets without end")
	return nil
}

// Each plan, on the way out and on the way in, of packets 1 to 8 of which 3, 6 are WRITEs.
func TestPlans(t *testing.T) {
	tests := []struct {
		name  string
		rules []Rule
		now   string // what comes at once
		later string // what comes 30 ms later
	}{
		{"nothing", nil, "1 2 3 4 5 6 7 8", ""},
		{"drop all", []Rule{{Action: Drop}}, "", ""},
		{"drop the third", []Rule{{Action: Drop, Nth: 3}}, "1 2 4 5 6 7 8", ""},
		{"drop two from the third", []Rule{{Action: Drop, Nth: 3, Count: 2}}, "1 2 5 6 7 8", ""},
		{"drop every other", []Rule{{Action: Drop, Every: 2}}, "2 4 6 8", ""},
		{"drop three of every other from the second", []Rule{{Action: Drop, Every: 2, Nth: 2, Count: 3}}, "1 3 5 7 8", ""},
		{"drop WRITEs", []Rule{{Action: Drop, Opcode: "rc_rdma_write_*"}}, "1 2 4 5 7 8", ""},
		{"drop the second WRITE", []Rule{{Action: Drop, Opcode: "RC_RDMA_WRITE_ONLY", Nth: 2}}, "1 2 3 4 5 7 8", ""},
		{"drop by PSN", []Rule{{Action: Drop, PSN: []uint32{2, 7}}}, "1 3 4 5 6 8", ""},
		{"drop of another queue pair", []Rule{{Action: Drop, QP: 0x33}}, "1 2 3 4 5 6 7 8", ""},
		{"duplicate", []Rule{{Action: Duplicate, PSN: []uint32{8}, Copies: 2}}, "1 2 3 4 5 6 7 8 8 8", ""},
		{"delay", []Rule{{Action: Delay, Delay: Duration(30 * ms), PSN: []uint32{1, 2}}}, "3 4 5 6 7 8", "1 2"},
		{"reorder", []Rule{{Action: Reorder, PSN: []uint32{8}, Behind: 1}}, "1 2 3 4 5 6 7", "8"},
		{"corrupt", []Rule{{Action: Corrupt, PSN: []uint32{4}, Bits: 9}}, "1 2 3 5 6 7 8", ""},
		{"truncate", []Rule{{Action: Truncate, PSN: []uint32{4}, Length: 60}}, "1 2 3 5 6 7 8", ""},
		{"truncate to nothing", []Rule{{Action: Truncate, PSN: []uint32{4}}}, "1 2 3 5 6 7 8", ""},
		{"the first that applies", []Rule{{Action: Duplicate, PSN: []uint32{8}}, {Action: Drop, Nth: 7, Count: 9}}, "1 2 3 4 5 6 8 8", ""},
	}
	for _, test := range tests {
		for _, d := range []Direction{Send, Receive} {
			for _, room := range []int{1, 3, 16} {
				for _, inner := range []nic.Port{local.New(32), newForeign(32)} {
					name := fmt.Sprintf("%s, %s, room for %d, %T", test.name, d, room, inner)
					plan := Plan{Rules: slices.Clone(test.rules)}
					for i := range plan.Rules {
						plan.Rules[i].Direction = d
					}
					p, err := Wrap(inner, plan)
					if err != nil {
						t.Fatal(err)
					}
					out := wire.NewBurst(8)
					for psn := range uint32(8) {
						op := wire.RCSendOnly
						if psn == 2 || psn == 5 {
							op = wire.RCWriteOnly
						}
						put(t, out, op, psn+1)
					}
					send(t, p, 0, out)
					now := recv(t, p, 0, room)
					later := recv(t, p, 30*ms, room)
					for got, want := range map[string]string{list(now): test.now, list(later): test.later} {
						if got != want {
							t.Errorf("%s: got %q, want %q", name, got, want)
						}
					}
					if d := p.Deadline(); d != clock.Never {
						t.Errorf("%s: something is due at %v", name, d)
					}
				}
			}
		}
	}
}

func list(psns []uint32) string { return strings.Trim(fmt.Sprint(psns), "[]") }

// A reordered packet goes behind as many as the rule says.
func TestReorder(t *testing.T) {
	for _, d := range []Direction{Send, Receive} {
		p, err := Wrap(newForeign(32), Plan{Rules: []Rule{{Action: Reorder, Direction: d, PSN: []uint32{2}, Behind: 3}}})
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for psn := range uint32(8) {
			out := wire.NewBurst(1)
			put(t, out, wire.RCSendOnly, psn+1)
			send(t, p, 0, out)
			got = append(got, recv(t, p, 0, 4)...)
		}
		if list(got) != "1 3 4 5 2 6 7 8" {
			t.Errorf("%s: %s", d, list(got))
		}
	}
}

func TestDeadline(t *testing.T) {
	for _, d := range []Direction{Send, Receive} {
		p, err := Wrap(local.New(4), Plan{Rules: []Rule{{Action: Delay, Direction: d, Delay: Duration(5 * ms)}}})
		if err != nil {
			t.Fatal(err)
		}
		out := wire.NewBurst(1)
		put(t, out, wire.RCSendOnly, 1)
		send(t, p, 10*ms, out)
		recv(t, p, 10*ms, 4)
		if at := nic.PortDeadline(local.Mux(p, local.New(1), nil)); at != 15*ms {
			t.Errorf("%s: due at %v", d, at)
		}
		if got := recv(t, p, 15*ms-1, 4); len(got) != 0 {
			t.Errorf("%s: came too early", d)
		}
		if got := recv(t, p, 15*ms, 4); list(got) != "1" {
			t.Errorf("%s: got %v", d, got)
		}
	}
}

// What was spoilt is counted as whoever receives it would; with the ICRC put right it is received.
func TestSpoil(t *testing.T) {
	for _, d := range []Direction{Send, Receive} {
		for _, c := range []struct {
			rule Rule
			drop wire.Drop
			size int // of the payload that is received, if drop is Accepted
		}{
			{Rule{Action: Corrupt, Bits: 7}, wire.DropICRC, 0},
			{Rule{Action: Truncate, Length: 0}, wire.DropTooShort, 0},
			{Rule{Action: Truncate, Length: 13}, wire.DropLength, 0},
			{Rule{Action: Truncate, Length: 80}, wire.DropICRC, 0},
			{Rule{Action: Truncate, Length: 80, FixICRC: true}, wire.Accepted, 64},
			{Rule{Action: Truncate, Length: 1000}, wire.Accepted, 100},
		} {
			c.rule.Direction = d
			p, err := Wrap(newForeign(4), Plan{Seed: 1, Rules: []Rule{c.rule}})
			if err != nil {
				t.Fatal(err)
			}
			out := wire.NewBurst(1)
			put(t, out, wire.RCSendOnly, 1)
			send(t, p, 0, out)
			packets := make([]wire.Packet, 2)
			n := p.Recv(0, packets)
			if c.drop != wire.Accepted {
				if n != 0 || p.Counters().Dropped[c.drop].Load() != 1 {
					t.Errorf("%s %+v: %d packets, %d counted", d, c.rule, n, p.Counters().Dropped[c.drop].Load())
				}
			} else if n != 1 || packets[0].Len != c.size {
				t.Errorf("%s %+v: %d packets, %d bytes", d, c.rule, n, packets[0].Len)
			}
		}
	}
	// One bit in memory: the packet comes, with one bit wrong.
	p, err := Wrap(newForeign(64), Plan{Seed: 3, Rules: []Rule{{Action: Corrupt, FixICRC: true, Direction: Receive}}})
	if err != nil {
		t.Fatal(err)
	}
	out := wire.NewBurst(32)
	for i := range uint32(32) {
		put(t, out, wire.RCSendOnly, i+1)
	}
	send(t, p, 0, out)
	packets := make([]wire.Packet, 64)
	if n := p.Recv(0, packets); n < 20 {
		t.Errorf("%d of 32 packets came", n)
	}
}

// The same seed does the same, another one something else, and a probability is about kept.
func TestSeed(t *testing.T) {
	run := func(seed uint64) []uint32 {
		p, err := Wrap(local.New(1024), Plan{Seed: seed, Rules: []Rule{{Action: Drop, Probability: 0.25}}})
		if err != nil {
			t.Fatal(err)
		}
		out := wire.NewBurst(1000)
		for i := range uint32(1000) {
			put(t, out, wire.RCSendOnly, i)
		}
		send(t, p, 0, out)
		return recv(t, p, 0, 64)
	}
	a, b, c := run(1), run(1), run(2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the seed does not decide")
	}
	if n := len(a); n < 500 || n > 625 { // 1000 * 0.75 * 0.75 = 562
		t.Errorf("%d of 1000 packets came", n)
	}
}

// congested takes one frame at a time, every other time none.
type congested struct {
	*local.Port
	calls int
}

func (c *congested) Send(now clock.Time, frames []wire.Frame) (int, error) {
	if c.calls++; c.calls%2 == 0 {
		return 0, nil
	}
	return c.Port.Send(now, frames[:1])
}

// A frame that is offered again because the port was congested is judged once.
func TestCongestion(t *testing.T) {
	p, err := Wrap(&congested{Port: local.New(64)}, Plan{Rules: []Rule{
		{Action: Drop, Nth: 4, Direction: Send}, {Action: Duplicate, PSN: []uint32{6}, Direction: Send}}})
	if err != nil {
		t.Fatal(err)
	}
	out := wire.NewBurst(16)
	for i := range uint32(8) {
		put(t, out, wire.RCSendOnly, i+1)
	}
	send(t, p, 0, out)
	got := recv(t, p, 0, 16)
	if g := list(slices.Compact(got)); g != "1 2 3 5 6 7 8" || p.Applied()[0] != 1 || p.Applied()[1] != 1 {
		t.Errorf("got %v, rules applied %v", got, p.Applied())
	}
}

// gone is memory that cannot be read.
type gone struct{ wire.Buffer }

func (*gone) Bytes(uint64, int) []byte  { return nil }
func (*gone) Read([]byte, uint64) error { return errors.New("gone") }

// A frame that a rule would copy and whose payload is gone is reported as the port within would, once.
func TestFrameFault(t *testing.T) {
	p, err := Wrap(local.New(8), Plan{Rules: []Rule{{Action: Delay, Delay: Duration(ms), PSN: []uint32{2}}}})
	if err != nil {
		t.Fatal(err)
	}
	out := wire.NewBurst(8)
	put(t, out, wire.RCSendOnly, 1)
	f := out.Next()
	f.Path = route
	f.SetHeader(wire.RCSendOnly)
	f.BTH().SetPSN(2)
	f.Add(new(gone), 0, 100)
	put(t, out, wire.RCSendOnly, 3)
	n, err := p.Send(0, out.Frames())
	if n != 1 || !isFrameFault(err) {
		t.Fatalf("Send took %d frames, %v", n, err)
	}
	out.Consume(2)
	send(t, p, 0, out)
	if got := list(recv(t, p, 0, 4)); got != "1 3" {
		t.Errorf("got %s", got)
	}
}

// What no rule concerns costs nothing.
func TestAllocs(t *testing.T) {
	p, err := Wrap(local.New(64), Plan{Rules: []Rule{{Action: Drop, QP: 0x77}, {Action: Drop, Opcode: "UD_*", Direction: Send}}})
	if err != nil {
		t.Fatal(err)
	}
	out := wire.NewBurst(32)
	m := &wire.Buffer{B: body(1)}
	packets := make([]wire.Packet, 16)
	if n := testing.AllocsPerRun(100, func() {
		for i := range 20 {
			f := out.Next()
			f.Path = route
			op := wire.RCSendOnly
			if i%4 == 3 {
				op = wire.UDSendOnly // which is dropped
			}
			f.SetHeader(op)
			f.Add(m, 0, 100)
		}
		n, _ := p.Send(0, out.Frames())
		out.Consume(n)
		for k := 1; k > 0; {
			k = p.Recv(0, packets)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPlanFiles(t *testing.T) {
	want := Plan{Seed: 1, Rules: []Rule{
		{Action: Drop, Direction: Send, Opcode: "RC_RDMA_WRITE_*", Nth: 3},
		{Action: Delay, Delay: Duration(5 * time.Millisecond), Probability: 0.01, QP: 0x11},
	}}
	var fromYAML, fromJSON Plan
	const text = `
seed: 1
rules:
- {action: drop, direction: send, opcode: RC_RDMA_WRITE_*, nth: 3}
- {action: delay, delay: 5ms, probability: 0.01, qp: 0x11}
`
	if err := yaml.UnmarshalWithOptions([]byte(text), &fromYAML, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &fromJSON); err != nil {
		t.Fatal(err)
	}
	for _, got := range []Plan{fromYAML, fromJSON} {
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, r := range map[string]Rule{
		`action: "" is none of drop, duplicate, delay, reorder, corrupt, truncate`:               {},
		`action: "lose" is none of drop, duplicate, delay, reorder, corrupt, truncate`:           {Action: "lose"},
		`delay: action delay needs a duration, 5ms for example`:                                  {Action: Delay},
		`direction: "up" is neither send nor receive`:                                            {Action: Drop, Direction: "up"},
		`opcode: "SEND" matches no opcode; they look like RC_SEND_ONLY, patterns like RC_SEND_*`: {Action: Drop, Opcode: "SEND"},
		`psn: 16777216 is longer than 24 bits`:                                                   {Action: Drop, PSN: []uint32{1 << 24}},
		`probability: not between 0 and 1`:                                                       {Action: Drop, Probability: 1.5},
		`length: -1 is negative`:                                                                 {Action: Truncate, Length: -1},
		`qp: longer than 24 bits`:                                                                {Action: Drop, QP: 1 << 24},
		`copies: negative`:                                                                       {Action: Duplicate, Copies: -1},
	} {
		_, err := Wrap(local.New(1), Plan{Rules: []Rule{{Action: Drop}, r}})
		if err == nil || err.Error() != "fault rule 2: "+want {
			t.Errorf("got  %v\nwant fault rule 2: %s", err, want)
		}
	}
}
