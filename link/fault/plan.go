package fault

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Plan is what shall go wrong. The zero Plan is a good network.
type Plan struct {
	// Seed makes the choices by probability, and of bits, the same each time.
	Seed uint64 `json:"seed,omitempty" yaml:"seed,omitempty"`
	// Rules are asked in order; the first that applies decides what happens to a packet, and later ones do not see it.
	Rules []Rule `json:"rules" yaml:"rules"`
}

// Action is what is done to a packet.
type Action string

// Actions.
const (
	Drop      Action = "drop"
	Duplicate Action = "duplicate"
	Delay     Action = "delay"    // by Rule.Delay
	Reorder   Action = "reorder"  // behind Rule.Behind later packets
	Corrupt   Action = "corrupt"  // flip Rule.Bits bits
	Truncate  Action = "truncate" // to Rule.Length bytes
)

// Direction says which packets a rule looks at, as the device sees them.
type Direction string

// Directions.
const (
	Both    Direction = ""
	Send    Direction = "send"
	Receive Direction = "receive"
)

// Rule is one fault: what to do, to which packets, and to how many of those.
type Rule struct {
	Action Action `json:"action" yaml:"action"`

	Direction Direction `json:"direction,omitempty" yaml:"direction,omitempty"`
	// QP is the number of the queue pair at this end, sending or receiving; 0 is any.
	QP ib.QPN `json:"qp,omitempty" yaml:"qp,omitempty"`
	// Opcode is the specification's name, or a pattern such as RC_RDMA_READ_RESPONSE_*; empty is any.
	Opcode string `json:"opcode,omitempty" yaml:"opcode,omitempty"`
	// PSN lists sequence numbers; empty is any.
	PSN []uint32 `json:"psn,omitempty" yaml:"psn,omitempty"`

	// Nth is the first of the packets looked for to which the rule applies, counted from 1. If it is set and Count is
	// not, the rule applies once.
	Nth uint64 `json:"nth,omitempty" yaml:"nth,omitempty"`
	// Every is 2 for every other one from there on, and so forth; 0 is 1.
	Every uint64 `json:"every,omitempty" yaml:"every,omitempty"`
	// Count is how often the rule applies at the most; 0 is no limit.
	Count uint64 `json:"count,omitempty" yaml:"count,omitempty"`
	// Probability is that of the rule applying to a packet that all the above selects; 0 is always.
	Probability float64 `json:"probability,omitempty" yaml:"probability,omitempty"`

	// Delay is how long a delayed packet is held back, and the longest that a reordered one is; for those 0 is 20 ms.
	Delay Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	// Behind is how many later packets pass a reordered one; 0 is 1.
	Behind int `json:"behind,omitempty" yaml:"behind,omitempty"`
	// Copies is how often a duplicated packet appears besides the first time; 0 is 1.
	Copies int `json:"copies,omitempty" yaml:"copies,omitempty"`
	// Bits is how many bits of a corrupted packet are flipped, chosen by the seed behind the opcode; 0 is 1.
	Bits int `json:"bits,omitempty" yaml:"bits,omitempty"`
	// Length is the bytes of UDP payload that remain of a truncated packet.
	Length int `json:"length,omitempty" yaml:"length,omitempty"`
	// FixICRC makes the ICRC right again after Corrupt and Truncate, so that the packet is not refused for it: what a
	// broken memory or a buggy peer does, and not a broken cable.
	FixICRC bool `json:"fix_icrc,omitempty" yaml:"fix_icrc,omitempty"`
}

// Duration is a time.Duration that is written as text: 5ms.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// defaultHold is how long a reordered packet waits for others to pass it.
const defaultHold = 20 * time.Millisecond

// Validate reports what is wrong with a plan, naming the rule, counted from 1, and the field.
func (p *Plan) Validate() error {
	for i := range p.Rules {
		if err := p.Rules[i].validate(); err != nil {
			return fmt.Errorf("fault rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (r *Rule) validate() error {
	switch r.Action {
	case Drop, Duplicate, Reorder, Corrupt:
	case Delay:
		if r.Delay <= 0 {
			return fmt.Errorf("delay: action %s needs a duration, 5ms for example", r.Action)
		}
	case Truncate:
		if r.Length < 0 {
			return fmt.Errorf("length: %d is negative", r.Length)
		}
	default:
		return fmt.Errorf("action: %q is none of drop, duplicate, delay, reorder, corrupt, truncate", r.Action)
	}
	switch r.Direction {
	case Both, Send, Receive:
	default:
		return fmt.Errorf("direction: %q is neither send nor receive", r.Direction)
	}
	if len(r.opcodes()) == 0 {
		return fmt.Errorf("opcode: %q matches no opcode; they look like RC_SEND_ONLY, patterns like RC_SEND_*", r.Opcode)
	}
	for _, psn := range r.PSN {
		if psn > ib.PSNMask {
			return fmt.Errorf("psn: %d is longer than 24 bits", psn)
		}
	}
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"probability: not between 0 and 1", !(r.Probability >= 0 && r.Probability <= 1)},
		{"qp: longer than 24 bits", r.QP > 1<<24-1},
		{"delay: negative", r.Delay < 0}, {"behind: negative", r.Behind < 0}, {"copies: negative", r.Copies < 0},
		{"bits: negative", r.Bits < 0},
	} {
		if f.bad {
			return fmt.Errorf("%s", f.name)
		}
	}
	return nil
}

// opcodes returns the opcodes that the rule looks for.
func (r *Rule) opcodes() (match []wire.Opcode) {
	for i := range 256 {
		op := wire.Opcode(i)
		if ok, _ := path.Match(strings.ToUpper(r.Opcode), op.String()); op.Valid() && (ok || r.Opcode == "") {
			match = append(match, op)
		}
	}
	return match
}

func (r *Rule) wantsPSN(psn ib.PSN) bool {
	return len(r.PSN) == 0 || slices.Contains(r.PSN, uint32(psn))
}
