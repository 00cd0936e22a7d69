package interop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// alone runs a program that needs no peer to its end and returns what it printed.
func alone(t *testing.T, args ...string) string {
	t.Helper()
	d, err := daemons()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := start(t, d[0].socket, args...)
	if err := p.wait(ctx); err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return p.out.String()
}

func TestDevices(t *testing.T) {
	progtest.Need(t, "ibv_devices")
	if out := alone(t, "ibv_devices"); !strings.Contains(out, "softnic0") {
		t.Errorf("no device in\n%s", out)
	}
}

func TestDevinfo(t *testing.T) {
	progtest.Need(t, "ibv_devinfo")
	out := alone(t, "ibv_devinfo", "-v")
	d, _ := daemons()
	for _, want := range []string{
		"hca_id:\tsoftnic0", "InfiniBand (0)", "PORT_ACTIVE (4)", "4096 (5)", "link_layer:\t\tEthernet", "ATOMIC_HCA (1)",
		"GID[  0]:\t\t::ffff:" + d[0].address.String() + ", RoCE v2", "max_msg_sz:\t\t0x80000000",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// ibv_asyncwatch prints what happens to a device; it learns of the end of its daemon as of the loss of the device.
func TestAsyncwatch(t *testing.T) {
	progtest.Need(t, "ibv_asyncwatch")
	d, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, d.socket, "stdbuf", "-oL", "ibv_asyncwatch")
	until(t, p, "async event FD")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, p, "IBV_EVENT_DEVICE_FATAL")
}

// until waits for words of a program that does not end by itself.
func until(t *testing.T, p *program, words string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for !strings.Contains(p.out.String(), words) {
		select {
		case <-p.ended:
			if strings.Contains(p.out.String(), words) {
				return
			}
			t.Fatalf("%s ended: %v", p.args[0], p.result)
		case <-late:
			t.Fatalf("%s does not say %q", p.args[0], words)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestPingpong(t *testing.T) {
	var pairs []pair
	add := func(program string, options ...string) {
		args := append([]string{program, "-p", "PORT", "-g", "0", "-n", "200"}, options...)
		p := same(strings.Join(append([]string{program}, options...), " "), args, "localhost")
		p.want = []string{"200 iters in"}
		p.short = len(options) == 0
		pairs = append(pairs, p)
	}
	for _, program := range []string{"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"} {
		add(program)
		add(program, "-e")
	}
	add("ibv_rc_pingpong", "-c")
	add("ibv_rc_pingpong", "-t")
	// Not with -e at once: an entry that comes between arming and polling is polled, its event finds the queue empty, as any
	// device's would, and that is an error to ibv_rc_pingpong with -t ("poll CQ failed 2").
	add("ibv_rc_pingpong", "-c", "-t")
	add("ibv_rc_pingpong", "-s", "1048576")
	add("ibv_rc_pingpong", "-N")
	add("ibv_srq_pingpong", "-q", "8")
	add("ibv_srq_pingpong", "-c")
	for _, options := range [][]string{{}, {"-e"}, {"-s", "65536"}} {
		server := append([]string{"ibv_xsrq_pingpong", "-p", "PORT", "-g", "0", "-n", "200"}, options...)
		p := same(strings.Join(append([]string{"ibv_xsrq_pingpong"}, options...), " "), server, "localhost")
		p.short = len(options) == 0
		pairs = append(pairs, p)
	}
	runPairs(t, pairs)
}
