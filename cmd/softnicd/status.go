package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/verbs"
)

// statusReport is what is said about the daemon.
type statusReport struct {
	PID      int           `json:"pid"`
	Started  time.Time     `json:"started"`
	Uptime   float64       `json:"uptime_s"`
	Sessions int           `json:"sessions"`
	Devices  []deviceState `json:"devices"`

	taken time.Time
}

// deviceState is what is said about one device.
type deviceState struct {
	Name      string `json:"name"`
	Profile   string `json:"profile"`
	Netdev    string `json:"netdev"`
	Ifindex   int    `json:"ifindex"`
	State     string `json:"state"`
	LinkMTU   int    `json:"link_mtu"`
	ActiveMTU int    `json:"active_mtu"`
	GIDs      int    `json:"gids"`

	Contexts    int    `json:"contexts"`
	PDs         int    `json:"pds"`
	QPs         int    `json:"qps"`
	CQs         int    `json:"cqs"`
	SRQs        int    `json:"srqs"`
	MRs         int    `json:"mrs"`
	MWs         int    `json:"mws"`
	MappedBytes uint64 `json:"mapped_bytes"`

	SentPackets     uint64 `json:"sent_packets"`
	SentBytes       uint64 `json:"sent_bytes"`
	ReceivedPackets uint64 `json:"received_packets"`
	ReceivedBytes   uint64 `json:"received_bytes"`

	Rates    *rates            `json:"rates,omitempty"` // without a second look there are none
	Counters map[string]uint64 `json:"counters,omitempty"`

	index int // in the daemon's list
}

// rates are what a port carried between two looks at it, a second.
type rates struct {
	SentPackets     float64 `json:"sent_packets"`
	SentBits        float64 `json:"sent_bits"`
	ReceivedPackets float64 `json:"received_packets"`
	ReceivedBits    float64 `json:"received_bits"`
}

func newStatus() *cobra.Command {
	var socket, output, device string
	var interval time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Say once how the daemon is: devices, ports, objects, rates, counters",
		Long: `Prints each device with the state of its port, what all applications together have on it, what its port carries, and
those of its counters that are not 0; with -o json all of them. Rates are of the --interval in which it looks twice.`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case output != "text" && output != "json":
				return usage(fmt.Errorf("-o %s: text or json expected", output))
			case interval < 0:
				return usage(fmt.Errorf("--interval %v: it is negative", interval))
			}
			r, err := lookTwice(c.Context(), device, interval, socketOption(socket))
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(c.OutOrStdout(), r)
			}
			r.print(c.OutOrStdout())
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "", "the daemon's control socket")
	f.StringVar(&device, "device", "", "only this device")
	f.DurationVar(&interval, "interval", 250*time.Millisecond, "how long rates are measured; 0 for none")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func socketOption(path string) []verbs.Option {
	if path == "" {
		return nil
	}
	return []verbs.Option{verbs.WithSocket(path)}
}

// lookTwice looks at the daemon, and once more after interval for the rates and with the counters.
func lookTwice(ctx context.Context, device string, interval time.Duration, opts []verbs.Option) (*statusReport, error) {
	var before *statusReport
	var err error
	if interval > 0 {
		if before, err = look(device, opts); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(interval):
		}
	}
	r, err := look(device, opts)
	if err != nil {
		return nil, err
	}
	r.since(before)
	for i := range r.Devices {
		if err := r.Devices[i].count(opts); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// look asks the daemon, about one device if only is not empty.
func look(only string, opts []verbs.Option) (*statusReport, error) {
	s, err := verbs.Status(opts...)
	if err != nil {
		return nil, err
	}
	r := &statusReport{PID: s.PID, Started: s.Started, Uptime: s.Taken.Sub(s.Started).Seconds(), Sessions: s.Sessions, taken: s.Taken, Devices: []deviceState{}}
	for i := range s.Devices {
		if d := &s.Devices[i]; only == "" || d.Name == only {
			r.Devices = append(r.Devices, newDeviceState(d, i))
		}
	}
	if only != "" && len(r.Devices) == 0 {
		return nil, fmt.Errorf("the daemon has no device %s", only)
	}
	return r, nil
}

func newDeviceState(d *verbs.DeviceStatus, index int) deviceState {
	return deviceState{
		Name: d.Name, Profile: d.Profile, Netdev: d.Netdev, Ifindex: d.Ifindex, State: d.State.String(), LinkMTU: d.LinkMTU,
		ActiveMTU: d.ActiveMTU.Bytes(), GIDs: d.GIDs, Contexts: d.Contexts, PDs: d.PDs, QPs: d.QPs, CQs: d.CQs, SRQs: d.SRQs,
		MRs: d.MRs, MWs: d.MWs, MappedBytes: d.MappedBytes, SentPackets: d.SentPackets, SentBytes: d.SentBytes,
		ReceivedPackets: d.ReceivedPackets, ReceivedBytes: d.ReceivedBytes, index: index,
	}
}

// count fetches the counters.
func (d *deviceState) count(opts []verbs.Option) error {
	list, err := verbs.DeviceCounters(d.index, opts...)
	if err != nil {
		return err
	}
	d.Counters = make(map[string]uint64, len(list))
	for _, c := range list {
		d.Counters[c.Name] = c.Value
	}
	return nil
}

// since computes the rates from an earlier look, if it was at the same daemon.
func (r *statusReport) since(before *statusReport) {
	if before == nil || !before.Started.Equal(r.Started) || before.PID != r.PID {
		return
	}
	seconds := r.taken.Sub(before.taken).Seconds()
	if seconds <= 0 {
		return
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		at := slices.IndexFunc(before.Devices, func(o deviceState) bool { return o.Name == d.Name })
		if at < 0 {
			continue
		}
		o := &before.Devices[at]
		d.Rates = &rates{
			SentPackets:     perSecond(o.SentPackets, d.SentPackets, seconds),
			SentBits:        8 * perSecond(o.SentBytes, d.SentBytes, seconds),
			ReceivedPackets: perSecond(o.ReceivedPackets, d.ReceivedPackets, seconds),
			ReceivedBits:    8 * perSecond(o.ReceivedBytes, d.ReceivedBytes, seconds),
		}
	}
}

func perSecond(before, after uint64, seconds float64) float64 {
	if after < before {
		return 0
	}
	return float64(after-before) / seconds
}

func (r *statusReport) print(out io.Writer) {
	r.table(out)
	for i := range r.Devices {
		d := &r.Devices[i]
		lines := d.counterLines(nil, false)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s:\n", d.Name)
		for _, l := range lines {
			fmt.Fprintln(out, "  "+l)
		}
	}
}

// table prints what has its place in a row for each device.
func (r *statusReport) table(out io.Writer) {
	up := time.Duration(r.Uptime * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(out, "daemon %d, up %v, %d sessions\n\n", r.PID, up, r.Sessions)
	if len(r.Devices) == 0 {
		fmt.Fprintln(out, "No devices.")
		return
	}
	fmt.Fprintln(out, statusHeader)
	for i := range r.Devices {
		fmt.Fprintln(out, r.Devices[i].row())
	}
}

var statusHeader = fmt.Sprintf("%-16s %-8s %-10s %-8s %5s %5s %5s %5s %5s %6s %8s %8s %8s %8s",
	"device", "profile", "on", "port", "mtu", "ctx", "qp", "cq", "srq", "mr", "tx pkt/s", "tx bit/s", "rx pkt/s", "rx bit/s")

func (d *deviceState) row() string {
	var v rates
	if d.Rates != nil {
		v = *d.Rates
	}
	rate := func(f float64) string {
		if d.Rates == nil {
			return "-"
		}
		return scaled(f)
	}
	return fmt.Sprintf("%-16s %-8s %-10s %-8s %5d %5d %5d %5d %5d %6d %8s %8s %8s %8s",
		d.Name, d.Profile, d.Netdev, d.State, d.ActiveMTU, d.Contexts, d.QPs, d.CQs, d.SRQs, d.MRs,
		rate(v.SentPackets), rate(v.SentBits), rate(v.ReceivedPackets), rate(v.ReceivedBits))
}

// counterLines are the counters in order of their names: those that are not 0, or that have changed since before.
func (d *deviceState) counterLines(before map[string]uint64, all bool) (lines []string) {
	var names []string
	for name, v := range d.Counters {
		if v != 0 || all || before[name] != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		line := fmt.Sprintf("%-30s %16d", name, d.Counters[name])
		if b, ok := before[name]; ok && b != d.Counters[name] {
			line += fmt.Sprintf("  %+d", int64(d.Counters[name]-b))
		}
		lines = append(lines, line)
	}
	return lines
}

// scaled prints a rate in five or six places: 12.3M.
func scaled(f float64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		if f < 1000 {
			if unit == "" {
				return fmt.Sprintf("%.0f", f)
			}
			return fmt.Sprintf("%.1f%s", f, unit)
		}
		f /= 1000
	}
	return fmt.Sprintf("%.1fT", f)
}
