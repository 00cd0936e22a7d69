package trace

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// Step is one line of a ladder: a packet from one endpoint to another, or, with To empty, something that happened at
// From.
type Step struct {
	Time     clock.Time
	From, To string // names of endpoints, as they head the columns
	Label    string // the packet's opcode, or what happened
	PSN      ib.PSN // of a packet
	Bytes    int    // of payload
	Meaning  string // what an acknowledgement says: "ACK", "NAK sequence error"
	Note     string // what became of it, in parentheses: "duplicate"
	Lost     bool   // the packet did not arrive
}

// Ladder draws steps as a ladder diagram: a column for each endpoint, time running down, an arrow for each packet.
//
//	          A                                  B
//	0.000 ms  │── RC_SEND_ONLY psn 0x000100 5 B ▶│
//	0.021 ms  │◀─ RC_ACKNOWLEDGE psn 0x000100 ACK│
//
// The zero value is ready for use.
type Ladder struct {
	// Endpoints are the columns from left to right. Those that turn up in the steps and are not named here follow, in
	// the order in which they do.
	Endpoints []string
	// Width is the most columns of text, 100 if it is 0. What does not fit is cut, not wrapped.
	Width int
	// ASCII draws with characters that every terminal has.
	ASCII bool
}

type glyphs struct{ life, dash, right, left, dot, lost, cut rune }

var (
	unicodeGlyphs = glyphs{'│', '─', '▶', '◀', '●', '✕', '…'}
	asciiGlyphs   = glyphs{'|', '-', '>', '<', '*', 'X', '~'}
)

const (
	defaultWidth = 100
	minGap       = 12
)

// Draw returns the diagram, a line for each step. Times count from the first step.
func (l Ladder) Draw(steps []Step) string {
	if len(steps) == 0 {
		return ""
	}
	d := l.layout(steps)
	var b strings.Builder
	d.write(&b, "", d.heading())
	for i := range steps {
		s := &steps[i]
		row := d.lifelines()
		if s.To == "" || s.To == s.From {
			d.happening(row, s)
		} else {
			d.arrow(row, s)
		}
		d.write(&b, milliseconds(s.Time-steps[0].Time), row)
	}
	return b.String()
}

// drawing is a ladder with its columns in place.
type drawing struct {
	glyphs
	names     []string
	columns   []int // of the lifelines, counted from the end of the time
	width     int   // of the part behind the time
	timeWidth int
}

func (l Ladder) layout(steps []Step) *drawing {
	d := &drawing{glyphs: unicodeGlyphs, names: slices.Clone(l.Endpoints)}
	if l.ASCII {
		d.glyphs = asciiGlyphs
	}
	for i := range steps {
		for _, name := range []string{steps[i].From, steps[i].To} {
			if name != "" && !slices.Contains(d.names, name) {
				d.names = append(d.names, name)
			}
		}
		d.timeWidth = max(d.timeWidth, len(milliseconds(steps[i].Time-steps[0].Time)))
	}
	width := l.Width
	if width == 0 {
		width = defaultWidth
	}
	// One lifeline alone has the room beside it for what happens there.
	gaps := max(len(d.names)-1, 1)
	gap := max((width-d.timeWidth-3)/gaps, minGap)
	for i := range d.names {
		d.columns = append(d.columns, i*gap)
	}
	d.width = d.columns[len(d.columns)-1] + 1
	if len(d.columns) == 1 {
		d.width = gap + 1
	}
	return d
}

func (d *drawing) write(b *strings.Builder, time string, row []rune) {
	line := fmt.Sprintf("%*s  %s", d.timeWidth, time, string(row))
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// heading puts the first name at the left of its column, the last at the right, and centers the others.
func (d *drawing) heading() []rune {
	row := d.blank()
	for i, name := range d.names {
		room := len(row)
		if len(d.columns) > 1 {
			room = d.columns[1] - 1
		}
		name := d.clip(name, room)
		n := utf8.RuneCountInString(name)
		at := d.columns[i] - n/2
		switch {
		case i == 0:
			at = 0
		case i == len(d.names)-1:
			at = d.columns[i] + 1 - n
		}
		put(row, at, name)
	}
	return row
}

func (d *drawing) blank() []rune {
	row := make([]rune, d.width)
	for i := range row {
		row[i] = ' '
	}
	return row
}

func (d *drawing) lifelines() []rune {
	row := d.blank()
	for _, c := range d.columns {
		row[c] = d.life
	}
	return row
}

// arrow draws from one lifeline to another, over those between.
func (d *drawing) arrow(row []rune, s *Step) {
	from, to := d.column(s.From), d.column(s.To)
	low, high := min(from, to)+1, max(from, to)-1
	text := " " + d.clip(s.text(), high-low+1-6) + " "
	at, begin, end := low+2, low, high
	n := utf8.RuneCountInString(text)
	if s.Lost && from < to {
		end = min(at+n+3, high)
	} else if s.Lost {
		at = high - 1 - n
		begin = max(at-4, low)
	}
	for i := begin; i <= end; i++ {
		row[i] = d.dash
	}
	put(row, at, text)
	head := d.right
	if s.Lost {
		// The arrow breaks off: the line does not reach the other side.
		head = d.lost
	} else if to < from {
		head = d.left
	}
	if from < to {
		row[end] = head
	} else {
		row[begin] = head
	}
}

// happening marks the lifeline and writes beside it: to the right, or to the left of the last.
func (d *drawing) happening(row []rune, s *Step) {
	c := d.column(s.From)
	row[c] = d.dot
	text := s.text()
	if s.To != "" {
		text += " to itself"
	}
	if len(d.columns) > 1 && c == d.columns[len(d.columns)-1] {
		text = d.clip(text, c-d.columns[len(d.columns)-2]-3)
		put(row, c-1-utf8.RuneCountInString(text), text)
		return
	}
	room := len(row) - 3
	if len(d.columns) > 1 {
		room = d.columns[1] - 3
	}
	put(row, c+2, d.clip(text, room))
}

func (d *drawing) column(name string) int { return d.columns[slices.Index(d.names, name)] }

// clip cuts s to n characters and shows that it did.
func (d *drawing) clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(n-1, 0)]) + string(d.cut)
}

// put writes s over the row, as far as there is room.
func put(row []rune, at int, s string) {
	for _, r := range s {
		if at >= 0 && at < len(row) {
			row[at] = r
		}
		at++
	}
}

// text is what is written on the arrow.
func (s *Step) text() string {
	var b strings.Builder
	b.WriteString(s.Label)
	if s.To != "" {
		fmt.Fprintf(&b, " psn %v", s.PSN)
	}
	if s.Bytes > 0 {
		fmt.Fprintf(&b, " %d B", s.Bytes)
	}
	if s.Meaning != "" {
		b.WriteString(" " + s.Meaning)
	}
	if s.Note != "" {
		b.WriteString(" (" + s.Note + ")")
	}
	return b.String()
}
