package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// config is what the daemon is told: by its file, by SOFTNICD_* variables, by flags. A flag beats a variable, a variable
// beats the file.
type config struct {
	Device   []string `yaml:"device"`
	Profile  []string `yaml:"profile"`
	Socket   string   `yaml:"socket"`
	Capture  string   `yaml:"capture"`
	Fault    string   `yaml:"fault"`
	LogLevel string   `yaml:"log-level"`
	Port     uint16   `yaml:"port"`
	Reclaim  reclaim  `yaml:"reclaim"`
	Shards   int      `yaml:"shards"`

	AckFloor time.Duration `yaml:"ack-floor"`
	InFlight int           `yaml:"in-flight"`
	LineRate uint64        `yaml:"line-rate"`
	CNP      onOff         `yaml:"cnp"`
	DCQCN    onOff         `yaml:"dcqcn"`

	PKey []string `yaml:"pkey"`
	Link linkKind `yaml:"link"`
}

// flags declares a flag for each key of the file.
func (c *config) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.Device, "device", nil, "a device, as NAME=INTERFACE or NAME=IP (repeatable; default: one for each interface that is up)")
	f.StringArrayVar(&c.Profile, "profile", nil, "how devices present themselves: "+profileNames()+", or DEVICE=PROFILE for one (repeatable; default softnic)")
	f.StringVar(&c.Socket, "socket", "", "control socket (default $SOFTNICD_SOCKET, $XDG_RUNTIME_DIR/softnicd.sock or /run/softnicd/softnicd.sock)")
	f.StringVar(&c.Capture, "capture", "", "write every packet to this pcapng file")
	f.StringVar(&c.Fault, "fault", "", "file of faults to put upon packets, for tests, as package link/fault explains: {rules: [{action: drop, probability: 0.01}]}")
	f.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.Uint16Var(&c.Port, "port", 4791, "UDP port of RoCEv2; another one speaks only to devices that were told the same")
	f.Var(&c.Link, "link", "how packets travel: udp, by ordinary sockets; raw, by packet sockets, as whole Ethernet frames, which needs CAP_NET_RAW (default udp)")
	f.Var(&c.Reclaim, "reclaim", "when a send slot comes back: poll, when its completion is polled, as on hardware; completion, when the request completes, as with Linux rxe (default as the profile says)")
	f.IntVar(&c.Shards, "shards", 1, "threads of each device that move data, each for a part of its queue pairs; one for every two cores is plenty")
	f.StringArrayVar(&c.PKey, "pkey", nil, "the P_Key table from entry 0 on, as 0xffff; the top bit is full membership (repeatable; default 0xffff)")
	f.DurationVar(&c.AckFloor, "ack-floor", 0, "least effective local ACK timeout, whatever queue pairs ask for: a busy host stalls longer (default 4ms)")
	f.IntVar(&c.InFlight, "in-flight", 0, "bytes that all reliable connections of a device have outstanding at most; -1 for no bound (default 2097152, or half of the receive buffer if that is less)")
	f.Uint64Var(&c.LineRate, "line-rate", 0, "Mbit/s that the network carries, where congestion control begins (default 10000)")
	f.Var(&c.CNP, "cnp", "answer packets that were marked CE by congestion notifications (default on)")
	f.Var(&c.DCQCN, "dcqcn", "ask for marks, and slow down when notified (default on)")
	f.String("config", "", "YAML file with a key for each of these flags")
}

// variable is the name of the variable for a flag.
func variable(flag string) string {
	return "SOFTNICD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// load completes what the flags left open from the environment and the file.
func (c *config) load(f *pflag.FlagSet) error {
	var problems []error
	f.VisitAll(func(flag *pflag.Flag) {
		name := variable(flag.Name)
		value, set := os.LookupEnv(name)
		if !set || flag.Changed {
			return
		}
		if err := f.Set(flag.Name, value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	})
	if err := errors.Join(problems...); err != nil {
		return usage(err)
	}
	path, _ := f.GetString("config")
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return usage(err)
	}
	var file config
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return usage(fmt.Errorf("%s: %w", path, err))
	}
	c.adopt(f, &file)
	return nil
}

// adopt takes from the file what it says and neither a flag nor a variable has set.
func (c *config) adopt(f *pflag.FlagSet, file *config) {
	if file.Device != nil && !f.Changed("device") {
		c.Device = file.Device
	}
	if file.Profile != nil && !f.Changed("profile") {
		c.Profile = file.Profile
	}
	if file.Socket != "" && !f.Changed("socket") {
		c.Socket = file.Socket
	}
	if file.Capture != "" && !f.Changed("capture") {
		c.Capture = file.Capture
	}
	if file.Fault != "" && !f.Changed("fault") {
		c.Fault = file.Fault
	}
	if file.LogLevel != "" && !f.Changed("log-level") {
		c.LogLevel = file.LogLevel
	}
	if file.Port != 0 && !f.Changed("port") {
		c.Port = file.Port
	}
	if file.Link != "" && !f.Changed("link") {
		c.Link = file.Link
	}
	if file.Reclaim != "" && !f.Changed("reclaim") {
		c.Reclaim = file.Reclaim
	}
	if file.Shards != 0 && !f.Changed("shards") {
		c.Shards = file.Shards
	}
	if file.PKey != nil && !f.Changed("pkey") {
		c.PKey = file.PKey
	}
	if file.AckFloor != 0 && !f.Changed("ack-floor") {
		c.AckFloor = file.AckFloor
	}
	if file.InFlight != 0 && !f.Changed("in-flight") {
		c.InFlight = file.InFlight
	}
	if file.LineRate != 0 && !f.Changed("line-rate") {
		c.LineRate = file.LineRate
	}
	if file.CNP != "" && !f.Changed("cnp") {
		c.CNP = file.CNP
	}
	if file.DCQCN != "" && !f.Changed("dcqcn") {
		c.DCQCN = file.DCQCN
	}
}

// reclaim is when a device gives the slots of work requests back. Nothing said is as the profile says.
type reclaim string

const (
	reclaimPoll       reclaim = "poll"
	reclaimCompletion reclaim = "completion"
)

// Set implements pflag.Value.
func (r *reclaim) Set(s string) error {
	switch v := reclaim(s); v {
	case reclaimPoll, reclaimCompletion:
		*r = v
		return nil
	}
	return fmt.Errorf("%q: poll or completion expected", s)
}

// String implements pflag.Value.
func (r *reclaim) String() string { return string(*r) }

// Type implements pflag.Value.
func (r *reclaim) Type() string { return "poll|completion" }

// UnmarshalYAML refuses other words with their place in the file.
func (r *reclaim) UnmarshalYAML(f func(any) error) error {
	var s string
	if err := f(&s); err != nil {
		return err
	}
	return r.Set(s)
}
