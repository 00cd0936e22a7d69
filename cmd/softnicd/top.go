package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newTop() *cobra.Command {
	var socket, output, device string
	var interval time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show live what the devices carry and which counters move",
		Long: `Shows the devices with their rates, and the counters of the chosen one with what was added since the last look. Arrows
choose a device, page up and down move among its counters, a shows those that are 0 too, q quits.

Where the output is no terminal it prints the same again and again, until interrupted; with -o json a line each time.`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case output != "text" && output != "json":
				return usage(fmt.Errorf("-o %s: text or json expected", output))
			case interval < 50*time.Millisecond:
				return usage(fmt.Errorf("--interval %v: at least 50ms expected", interval))
			}
			opts := socketOption(socket)
			look := func() (*statusReport, error) { return lookTwice(c.Context(), device, 0, opts) }
			out := c.OutOrStdout()
			if output == "text" {
				screen, ok := out.(*os.File)
				if keyboard, too := c.InOrStdin().(*os.File); ok && too && isTerminal(screen) && isTerminal(keyboard) {
					return live(c.Context(), keyboard, screen, interval, look)
				}
			}
			return repeat(c.Context(), out, output, interval, look)
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "", "the daemon's control socket")
	f.StringVar(&device, "device", "", "only this device")
	f.DurationVar(&interval, "interval", time.Second, "how often it looks")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// repeat prints what there is again and again, until ctx ends.
func repeat(ctx context.Context, out io.Writer, output string, interval time.Duration, look func() (*statusReport, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	lines := json.NewEncoder(out)
	for before := (*statusReport)(nil); ; {
		r, err := look()
		if err != nil {
			return err
		}
		r.since(before)
		before = r
		if output == "json" {
			if err := lines.Encode(r); err != nil {
				return err
			}
		} else {
			fmt.Fprintln(out, r.taken.Format(time.DateTime))
			r.print(out)
			fmt.Fprintln(out)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// live shows it on a terminal until q is pressed or ctx ends.
func live(ctx context.Context, in, out *os.File, interval time.Duration, look func() (*statusReport, error)) (err error) {
	t, err := newTerminal(in, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	// One look at a time, beside the terminal: keys are heard while the daemon takes its time.
	ctx, cancel := context.WithCancel(ctx)
	reports, failed := make(chan *statusReport), make(chan error, 1)
	done := make(chan struct{})
	defer func() {
		cancel()
		select {
		case <-done:
		case <-time.After(interval): // a daemon that does not answer keeps nobody here
		}
	}()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			r, err := look()
			if err != nil {
				failed <- err
				return
			}
			select {
			case reports <- r:
			case <-ctx.Done():
			}
			select {
			case <-time.After(interval):
			case <-ctx.Done():
			}
		}
	}()
	m := new(topModel)
	for {
		m.width, m.height = t.size()
		if err := t.draw(m.view()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case r := <-reports:
			m.take(r)
		case k := <-t.keys:
			if m.key(k) {
				return nil
			}
		case <-t.resized:
		}
	}
}

// topModel is what the terminal shows.
type topModel struct {
	report, before *statusReport
	chosen         int  // device
	scroll         int  // counters above the first that is shown
	all            bool // those that are 0 too
	width, height  int
}

// take shows a newer look.
func (m *topModel) take(r *statusReport) {
	r.since(m.report)
	m.before, m.report = m.report, r
	m.choose(m.chosen)
}

// key does what a key asks for, and reports whether that is to quit.
func (m *topModel) key(k string) (quit bool) {
	switch k {
	case "q", "esc", "ctrl+c":
		return true
	case "up", "k":
		m.choose(m.chosen - 1)
	case "down", "j":
		m.choose(m.chosen + 1)
	case "pgup", "left":
		m.scroll = max(m.scroll-10, 0)
	case "pgdown", "right":
		m.scroll += 10
	case "a":
		m.all = !m.all
	}
	return false
}

// choose takes a device, the nearest one that there is.
func (m *topModel) choose(n int) {
	count := 0
	if m.report != nil {
		count = len(m.report.Devices)
	}
	n = max(min(n, count-1), 0)
	if n != m.chosen {
		m.scroll = 0
	}
	m.chosen = n
}

// view is the screen as lines, no more and none longer than there is room for.
func (m *topModel) view() []string {
	if m.report == nil {
		return []string{m.fit("asking the daemon ...")}
	}
	var b strings.Builder
	m.report.table(&b)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(m.report.Devices) > 0 {
		first := len(lines) - len(m.report.Devices)
		lines[first+m.chosen] = "\x1b[7m" + m.fit(lines[first+m.chosen]) + "\x1b[0m" // reverse
		lines = append(lines, "")
		lines = append(lines, m.counters(m.room(len(lines)))...)
	}
	for i := range lines {
		lines[i] = m.fit(lines[i])
	}
	if m.height > 0 && len(lines) > m.height-1 {
		lines = lines[:max(m.height-1, 0)]
	}
	return append(lines, m.fit("arrows: device, counters   a: all counters   q: quit"))
}

// room is how many lines are left for counters.
func (m *topModel) room(used int) int {
	if m.height == 0 {
		return 1 << 16
	}
	return max(m.height-used-1, 0)
}

// counters are those of the chosen device, as many as there is room for.
func (m *topModel) counters(room int) []string {
	d := &m.report.Devices[m.chosen]
	var before map[string]uint64
	if m.before != nil {
		for i := range m.before.Devices {
			if m.before.Devices[i].Name == d.Name {
				before = m.before.Devices[i].Counters
			}
		}
	}
	lines := d.counterLines(before, m.all)
	m.scroll = max(min(m.scroll, len(lines)-room), 0)
	return lines[m.scroll:min(len(lines), m.scroll+room)]
}

// fit cuts a line to the terminal's width: a line that wraps pushes another one out. Lines with colour are cut already.
func (m *topModel) fit(line string) string {
	if m.width == 0 || strings.HasPrefix(line, "\x1b") {
		return line
	}
	if r := []rune(line); len(r) > m.width {
		return string(r[:m.width])
	}
	return line
}
