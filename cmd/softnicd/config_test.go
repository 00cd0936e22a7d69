package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/nic"
	"github.com/spf13/pflag"
)

// load reads a configuration as `softnicd run` does.
func load(t *testing.T, file string, args ...string) (config, error) {
	t.Helper()
	var c config
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	c.flags(f)
	if file != "" {
		path := filepath.Join(t.TempDir(), "softnicd.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	err := c.load(f)
	return c, err
}

const wholeFile = `device: [a=lo, b=127.0.0.2]
profile: [rxe, a=softnic]
socket: /file.sock
capture: /file.pcapng
fault: /file.faults
log-level: debug
port: 1001
reclaim: completion
shards: 3
ack-floor: 7ms
in-flight: 500000
line-rate: 40000
cnp: off
dcqcn: off
pkey: ["0xffff", "0x8001"]
link: raw
`

// A flag beats a variable, and a variable beats the file, for each key by itself.
func TestPrecedence(t *testing.T) {
	for key := range keysOf(config{}) {
		t.Setenv("SOFTNICD_"+strings.ToUpper(strings.ReplaceAll(key, "-", "_")), "")
		os.Unsetenv("SOFTNICD_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_")))
	}
	check := func(want config, file string, args ...string) {
		t.Helper()
		if got, err := load(t, file, args...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	check(config{LogLevel: "info", Port: 4791, Shards: 1}, "")
	check(config{LogLevel: "info", Port: 4791, Shards: 1}, "# nothing\n")
	file := config{[]string{"a=lo", "b=127.0.0.2"}, []string{"rxe", "a=softnic"}, "/file.sock", "/file.pcapng", "/file.faults", "debug", 1001, reclaimCompletion, 3,
		7 * time.Millisecond, 500000, 40000, off, off, []string{"0xffff", "0x8001"}, linkRaw}
	check(file, wholeFile)

	t.Setenv("SOFTNICD_SOCKET", "/env.sock")
	t.Setenv("SOFTNICD_PORT", "1002")
	t.Setenv("SOFTNICD_DEVICE", "c=lo")
	want := file
	want.Socket, want.Port, want.Device = "/env.sock", 1002, []string{"c=lo"}
	check(want, wholeFile)

	want.Port, want.LogLevel, want.Capture, want.Device = 1003, "warn", "/flag.pcapng", []string{"d=lo", "e=lo"}
	check(want, wholeFile, "--port", "1003", "--log-level", "warn", "--capture", "/flag.pcapng", "--device", "d=lo", "--device", "e=lo")
	want.Reclaim = reclaimPoll
	check(want, wholeFile, "--port", "1003", "--log-level", "warn", "--capture", "/flag.pcapng", "--device", "d=lo", "--device", "e=lo", "--reclaim", "poll")
	want.Socket, want.Reclaim = "/flag.sock", reclaimCompletion
	check(want, wholeFile, "--port", "1003", "--log-level", "warn", "--capture", "/flag.pcapng", "--device", "d=lo", "--device", "e=lo", "--socket", "/flag.sock")
}

func TestTuning(t *testing.T) {
	t.Setenv("SOFTNICD_CNP", "off")
	c, err := load(t, wholeFile, "--dcqcn", "on", "--ack-floor", "250us", "--in-flight", "-1")
	if want := (nic.Limits{AckFloor: 250 * time.Microsecond, InFlight: -1, LineRate: 40e9, NoCNP: true}); err != nil || c.limits(4096) != want {
		t.Errorf("%+v, %v; want %+v", c.limits(4096), err, want)
	}
	if c, err := load(t, ""); err != nil || c.limits(8<<20) != (nic.Limits{NoCNP: true}) || c.limits(400000).InFlight != 200000 {
		t.Errorf("%+v, %v by default", c.limits(8<<20), err)
	}
	for _, file := range []string{"cnp: maybe\n", "ack-floor: soon\n", "in-flight: much\n", "line-rate: -1\n"} {
		if _, err := load(t, file); err == nil {
			t.Errorf("%q: no error", file)
		}
	}
}

func TestBadReclaim(t *testing.T) {
	var c config
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	c.flags(f)
	if err := f.Parse([]string{"--reclaim", "never"}); err == nil || !strings.Contains(err.Error(), "poll or completion") {
		t.Errorf("error %v", err)
	}
	t.Setenv("SOFTNICD_RECLAIM", "never")
	if _, err := load(t, ""); err == nil || !strings.Contains(err.Error(), "SOFTNICD_RECLAIM") {
		t.Errorf("error %v", err)
	}
}

// keysOf returns the keys that the file may have.
func keysOf(c config) map[string]bool {
	keys := map[string]bool{}
	for i := range reflect.TypeOf(c).NumField() {
		keys[reflect.TypeOf(c).Field(i).Tag.Get("yaml")] = true
	}
	return keys
}

// Each flag but --config has a key, and the other way round.
func TestKeysAreFlags(t *testing.T) {
	var c config
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	c.flags(f)
	keys := keysOf(c)
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" && !keys[flag.Name] {
			t.Errorf("--%s has no key", flag.Name)
		}
		delete(keys, flag.Name)
	})
	if len(keys) > 0 {
		t.Errorf("keys without a flag: %v", keys)
	}
}

func TestBadFiles(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"port: 1\nprot: 7\n", "[2:1] unknown field \"prot\""},
		{"port: many\n", "[1:7]"},
		{"socket: a\nport: 99999\n", "[2:7]"},
		{"device: lo: lo\n", "[1:"},
		{"port: 1\nport: 2\n", "[2:1]"},
		{"[", "[1:1]"},
		{"reclaim: sometimes\n", "poll or completion expected"},
		{"link: dsl\n", "udp or raw expected"},
	} {
		_, err := load(t, c.file)
		var e *exitError
		if !errors.As(err, &e) || e.code != exitUsage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want a usage error with %q", c.file, err, c.want)
		}
	}
}
