package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/verbs"
)

// eventLine is what is said about one event.
type eventLine struct {
	Number  uint64    `json:"number"`
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Device  string    `json:"device,omitempty"`
	Event   string    `json:"event,omitempty"` // as C spells it
	Words   string    `json:"words,omitempty"`
	Context uint64    `json:"context,omitempty"`
	Handle  int       `json:"handle,omitempty"`
	UID     *int      `json:"uid,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Value   uint64    `json:"value,omitempty"`
}

func newEvents() *cobra.Command {
	var socket, output string
	c := &cobra.Command{
		Use:   "events",
		Short: "Print what happens: asynchronous events, ports, contexts that come and go",
		Long: `Prints each event of the daemon as it happens, until interrupted or until the daemon ends: asynchronous events of all
applications and ports, changes of the MTU, contexts that are opened and closed, the daemon's own end. With -o json it is an
object on each line. The daemon's own user and root may.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage(fmt.Errorf("-o %s: text or json expected", output))
			}
			return followEvents(c.Context(), c.OutOrStdout(), output, socketOption(socket))
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "", "the daemon's control socket")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// followEvents prints events until ctx or the daemon ends. A daemon that said so before is a good end.
func followEvents(ctx context.Context, out io.Writer, output string, opts []verbs.Option) error {
	devices, err := verbs.Devices(opts...)
	if err != nil {
		return err
	}
	stream, err := verbs.Follow(opts...)
	if err != nil {
		return err
	}
	defer stream.Close()
	lines := json.NewEncoder(out)
	for draining := false; ; {
		list, err := stream.Next(ctx)
		switch {
		case ctx.Err() != nil, draining && errors.Is(err, verbs.ErrDeviceFatal):
			return nil
		case err != nil:
			return err
		}
		for i := range list {
			draining = draining || list[i].Kind == verbs.DaemonDraining
			l := newEventLine(&list[i], devices)
			if output == "json" {
				err = lines.Encode(l)
			} else {
				_, err = fmt.Fprintln(out, l)
			}
			if err != nil {
				return err
			}
		}
	}
}

func newEventLine(e *verbs.DaemonEvent, devices []verbs.DeviceInfo) *eventLine {
	l := &eventLine{Number: e.Number, Time: e.Time, Kind: e.Kind.String(), Context: e.Context, Handle: e.Handle, PID: e.PID, Value: e.Value}
	if e.Device >= 0 && e.Device < len(devices) {
		l.Device = devices[e.Device].Name
	}
	if e.Kind == verbs.DaemonAsync {
		l.Event, l.Words = e.Event.Name(), e.Event.String()
	}
	if e.Context != 0 {
		l.UID = &e.UID
	}
	return l
}

// String is the line for people.
func (l *eventLine) String() string {
	s := l.Time.Format("15:04:05.000000")
	if l.Device != "" {
		s += " " + l.Device
	}
	s += " " + l.Kind
	if l.Event != "" {
		s += fmt.Sprintf(" %s (%s)", l.Event, l.Words)
	}
	if l.Context != 0 {
		s += fmt.Sprintf(" context %d", l.Context)
	}
	if l.Handle != 0 {
		s += fmt.Sprintf(" object %d", l.Handle)
	}
	if l.UID != nil {
		s += fmt.Sprintf(" uid %d pid %d", *l.UID, l.PID)
	}
	if l.Value != 0 {
		s += fmt.Sprintf(" %d", l.Value)
	}
	return s
}
