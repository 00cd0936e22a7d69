package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// A latency test of a service that repairs nothing ends when a message is lost, also where it sleeps meanwhile.
func TestPerfLatencyLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for what does not come")
	}
	dir := t.TempDir()
	socket, exchange, faults := filepath.Join(dir, "s"), filepath.Join(dir, "x"), filepath.Join(dir, "faults")
	check(t, os.WriteFile(faults, []byte("rules:\n- {action: drop, direction: send, nth: 50, count: 1000}\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	program := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, "/proc/self/exe", args...)
		c.Env = append(os.Environ(), beSoftnicd+"=1")
		return c
	}
	daemon := program("run", "--socket", socket, "--port", "14798", "--device", "a=127.0.0.1", "--device", "b=127.0.0.2",
		"--fault", faults, "--log-level", "error")
	check(t, daemon.Start())
	defer daemon.Wait()
	defer daemon.Process.Signal(os.Interrupt)
	for daemonProcess(socket).PID == 0 {
		check(t, ctx.Err())
		time.Sleep(5 * time.Millisecond)
	}
	for _, service := range []string{"uc", "ud"} {
		server := program("perf", "--server", "--socket", socket, "--device", "b", "--exchange", exchange)
		check(t, server.Start())
		// The client of --local dials this way.
		link, err := dialPerf(ctx, "unix", exchange, 10*time.Second)
		check(t, err)
		o := options(func(o *perfOptions) { o.test, o.service, o.events = "send-lat", service, true })
		plans, err := o.plans()
		check(t, err)
		var out progtest.Buffer
		meet := func(context.Context) (*perfLink, error) { return link, nil }
		err = perfMeasure(ctx, plans, perfHost{device: "a", socket: socket}, meet, "text", &out, &out)
		if err == nil || !strings.Contains(err.Error(), "a message was lost") {
			t.Errorf("%s: %v", service, err)
		}
		if err := server.Wait(); err == nil {
			t.Errorf("%s: the server saw nothing of that", service)
		}
	}
}
