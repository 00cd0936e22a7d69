package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/verbs"
)

// cqRow is what is said about one completion queue.
type cqRow struct {
	Device     string     `json:"device"`
	PID        int        `json:"pid"`
	Process    string     `json:"process"`
	UID        int        `json:"uid"`
	Context    uint64     `json:"context"` // of the device, in order of opening
	Handle     int        `json:"handle"`  // in its context
	Capacity   int        `json:"capacity"`
	Occupancy  int        `json:"occupancy"`
	HighWater  int        `json:"high_water"`
	Overrun    bool       `json:"overrun"`
	Overruns   uint64     `json:"overruns"` // entries lost
	Channel    bool       `json:"channel"`
	Armed      string     `json:"armed"`
	Events     uint64     `json:"events"`
	Moderation moderation `json:"moderation"`
	Queues     int        `json:"queues"`  // send and receive queues that complete into it
	Demand     int        `json:"demand"`  // sum of their depths
	Reclaim    string     `json:"reclaim"` // when slots come back: poll or completion
	Advice     cqAdvice   `json:"advice"`
}

type moderation struct {
	Count  int `json:"count"`
	Period int `json:"period_us"`
}

func (m moderation) String() string {
	if m == (moderation{}) {
		return "off"
	}
	return fmt.Sprintf("%d / %d us", m.Count, m.Period)
}

type cqAdvice struct {
	Verdict string `json:"verdict"` // too small, too large, fits
	Entries uint64 `json:"entries"` // what it would take; 0 if nothing is known
	Reason  string `json:"reason"`
}

func newCQ() *cobra.Command {
	var socket, output, device string
	var watch bool
	var interval time.Duration
	c := &cobra.Command{
		Use:   "cq",
		Short: "List completion queues and say how deep each should be",
		Long: `Lists the completion queues of all applications of the daemon: how full each is, how full it ever was, what could be
posted into it at once, and whether it is too small, too large, or fits. The daemon's own user and root see everybody's,
other users their own. The last column is the capacity that a queue would take; below the table stands why.

A queue as deep as all work queues that complete into it together never overruns on a device that gives slots back when
completions are polled, as hardware does. Where they come back on completion (a device like Linux rxe) the demand has a +:
nothing bounds it, and the high-water mark is all there is to go by.`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case output != "text" && output != "json":
				return usage(fmt.Errorf("-o %s: text or json expected", output))
			case interval < 50*time.Millisecond:
				return usage(fmt.Errorf("--interval %v: at least 50ms expected", interval))
			}
			list := func() ([]cqRow, error) { return queryCQs(device, socketOption(socket)) }
			if watch {
				return watchCQs(c.Context(), c.OutOrStdout(), output, interval, list)
			}
			rows, err := list()
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(c.OutOrStdout(), rows)
			}
			printCQs(c.OutOrStdout(), rows)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "", "the daemon's control socket")
	f.StringVar(&device, "device", "", "only the queues of this device")
	f.BoolVarP(&watch, "watch", "w", false, "again and again, until interrupted; with -o json a line each time")
	f.DurationVar(&interval, "interval", time.Second, "how often --watch looks")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// queryCQs asks the daemon, about one device if only is not empty.
func queryCQs(only string, opts []verbs.Option) ([]cqRow, error) {
	if only != "" {
		devices, err := verbs.Devices(opts...)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(devices, func(d verbs.DeviceInfo) bool { return d.Name == only }) {
			return nil, fmt.Errorf("the daemon has no device %s", only)
		}
	}
	list, err := verbs.CQs(opts...)
	if err != nil {
		return nil, err
	}
	rows := []cqRow{}
	for i := range list {
		if only == "" || list[i].Device == only {
			rows = append(rows, newCQRow(&list[i]))
		}
	}
	return rows, nil
}

func newCQRow(s *verbs.CQStatus) cqRow {
	advice := cq.Advise(cq.Evidence{
		Capacity: uint64(s.Capacity), HighWater: uint64(s.HighWater), Overruns: s.Overruns, Demand: uint64(s.Demand),
		ReclaimOnCompletion: s.ReclaimOnCompletion,
	})
	r := cqRow{
		Device: s.Device, PID: s.PID, Process: s.Process, UID: s.UID, Context: s.Context, Handle: s.Handle,
		Capacity: s.Capacity, Occupancy: s.Occupancy, HighWater: s.HighWater, Overrun: s.Overrun, Overruns: s.Overruns,
		Channel: s.Channel, Armed: s.Armed.String(), Events: s.Events,
		Moderation: moderation{s.ModerationCount, s.ModerationPeriod},
		Queues:     s.Queues, Demand: s.Demand, Reclaim: "poll",
		Advice: cqAdvice{advice.Verdict.String(), advice.Entries, advice.Reason},
	}
	if s.ReclaimOnCompletion {
		r.Reclaim = "completion"
	}
	return r
}

// watchCQs prints the list again and again, until ctx ends.
func watchCQs(ctx context.Context, out io.Writer, output string, interval time.Duration, list func() ([]cqRow, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	lines := json.NewEncoder(out)
	for {
		rows, err := list()
		if err != nil {
			return err
		}
		if output == "json" {
			if err := lines.Encode(rows); err != nil {
				return err
			}
		} else {
			fmt.Fprint(out, "\x1b[H\x1b[2J") // home, clear
			fmt.Fprintf(out, "%s, every %v\n", time.Now().Format(time.TimeOnly), interval)
			printCQs(out, rows)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// owner names the application of a queue.
func (r *cqRow) owner() string {
	switch {
	case r.PID == 0:
		return fmt.Sprintf("user %d", r.UID)
	case r.Process == "":
		return fmt.Sprint(r.PID)
	}
	return fmt.Sprintf("%s (%d)", r.Process, r.PID)
}

func printCQs(out io.Writer, rows []cqRow) {
	if len(rows) == 0 {
		fmt.Fprintln(out, "No completion queues.")
		return
	}
	t := tablewriter.NewTable(out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{Symbols: tw.NewSymbols(tw.StyleLight)})),
		tablewriter.WithHeaderAutoFormat(tw.Off))
	t.Header("device", "process", "uid", "cq", "capacity", "waiting", "high water", "lost", "events", "moderation", "armed",
		"queues", "demand", "advice", "take")
	for i := range rows {
		r := &rows[i]
		armed, take, demand := r.Armed, fmt.Sprint(r.Advice.Entries), fmt.Sprint(r.Demand)
		if r.Reclaim == "completion" {
			demand += "+" // while nobody polls, slots are used again
		}
		if !r.Channel {
			armed = "-"
		}
		if r.Advice.Entries == 0 {
			take = "-"
		}
		_ = t.Append(r.Device, r.owner(), fmt.Sprint(r.UID), r.name(), fmt.Sprint(r.Capacity), fmt.Sprint(r.Occupancy),
			fmt.Sprint(r.HighWater), fmt.Sprint(r.Overruns), fmt.Sprint(r.Events), r.Moderation.String(), armed,
			fmt.Sprint(r.Queues), demand, r.Advice.Verdict, take)
	}
	_ = t.Render()
	for i := range rows {
		if r := &rows[i]; r.Advice.Verdict != cq.Fits.String() {
			fmt.Fprintf(out, "%s, %s, cq %s is %s: %s. %d entries would do.\n",
				r.Device, r.owner(), r.name(), r.Advice.Verdict, r.Advice.Reason, r.Advice.Entries)
		}
	}
}

// name is the context and the handle in it: an application may have several contexts.
func (r *cqRow) name() string { return fmt.Sprintf("%d.%d", r.Context, r.Handle) }
