package interop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// command runs a program with more variables to its end.
func command(t *testing.T, environ []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), environ...)
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return outcome{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// empty fails unless nothing is in a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left behind", e.Name())
	}
}

// The exit code of exec is the program's, and nothing of its daemon stays.
func TestStandaloneEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"done", []string{"true"}, 0},
		{"failed", []string{"sh", "-c", "exit 7"}, 7},
		{"killed", []string{"sh", "-c", "kill -KILL $$"}, 137},
		{"not there", []string{"no-such-program"}, 127},
		{"not a program", []string{"/etc/passwd"}, 126},
		{"flags of its own", []string{"test", "-n", "--standalone"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			got := command(t, []string{"TMPDIR=" + dir}, append([]string{softnicd, "exec", "--standalone"}, c.args...)...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d; stderr %q", got.code, c.code, got.stderr)
			}
			empty(t, dir)
		})
	}
}

// A signal goes on to the program, which decides.
func TestSignals(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		d, err := daemons()
		if err != nil {
			t.Fatal(err)
		}
		flags := []string{"--socket", d[0].socket}
		if standalone {
			flags = []string{"--standalone"}
		}
		p := startExec(t, flags, "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done")
		until(t, p, "ready")
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		if code := p.cmd.ProcessState.ExitCode(); code != 9 {
			t.Errorf("standalone %v: exit code %d", standalone, code)
		}
	}
}

// Who has no daemon is told what to do.
func TestNoDaemon(t *testing.T) {
	got := command(t, nil, softnicd, "exec", "--socket", filepath.Join(t.TempDir(), "none"), "--", "true")
	for _, want := range []string{"no daemon answers on", "softnicd run", "--standalone"} {
		if got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
		}
	}
	if got := command(t, nil, softnicd, "exec", "--pkey", "0xffff", "--", "true"); got.code != 2 || !strings.Contains(got.stderr, "--pkey is for the daemon") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}

// Children of the program are served too, and flags of run reach the private daemon.
func TestStandaloneServes(t *testing.T) {
	progtest.Need(t, "ibv_devices")
	got := command(t, nil, softnicd, "exec", "--standalone", "--device", "one=127.9.8.7", "--device", "two=127.9.8.6", "--", "sh", "-c", "sh -c ibv_devices")
	if got.code != 0 || !strings.Contains(got.stdout, "one") || !strings.Contains(got.stdout, "two") {
		t.Errorf("%+v", got)
	}
}

// What programs look for in /sys is there, for those that are run with --sysfs.
func TestSysfs(t *testing.T) {
	script := `cd /tmp
for f in node_type ports/1/state ports/1/link_layer ports/1/rate ports/1/gids/0 ports/1/gid_attrs/types/0 ports/1/pkeys/0 ports/1/counters/port_xmit_data device/numa_node; do
  echo "$f=$(cat /sys/class/infiniband/softnic0/$f)"
done
ls /sys/class/infiniband /sys/class/infiniband_verbs
test -c /dev/infiniband/uverbs0 && echo character device
cat /sys/class/net/lo/mtu`
	got := command(t, nil, softnicd, "exec", "--standalone", "--device", "softnic0=127.9.8.5", "--sysfs", "--", "sh", "-c", script)
	for _, want := range []string{
		"node_type=1: CA\n", "ports/1/state=4: ACTIVE\n", "ports/1/link_layer=Ethernet\n", "ports/1/rate=", "device/numa_node=-1\n",
		"ports/1/gids/0=0000:0000:0000:0000:0000:ffff:7f09:0805\n", "ports/1/gid_attrs/types/0=RoCE v2\n", "ports/1/pkeys/0=0xffff\n",
		"ports/1/counters/port_xmit_data=0\n", "uverbs0", "character device\n", "65536\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}
}

// elsewhere is the program without its libraries beside it.
func elsewhere(t *testing.T) string {
	t.Helper()
	from, err := os.Open(softnicd)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "softnicd")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Several that compile for the first time at once end with one folder, and the next one compiles nothing.
func TestFirstUse(t *testing.T) {
	cache, program := t.TempDir(), elsewhere(t)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if got := command(t, []string{"XDG_CACHE_HOME=" + cache}, program, "libs"); got.code != 0 || !strings.HasPrefix(got.stdout, cache) {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(filepath.Join(cache, "softnicd"))
	if err != nil || len(entries) != 1 {
		t.Errorf("in the cache: %v, %v", entries, err)
	}
	libs := command(t, []string{"XDG_CACHE_HOME=" + cache}, program, "libs", "--print-env", "--socket", "/a socket")
	for _, want := range []string{"export LD_LIBRARY_PATH='" + cache, "export LD_PRELOAD='", "export SOFTNICD_SOCKET='/a socket'\n"} {
		if !strings.Contains(libs.stdout, want) {
			t.Errorf("no %q in %q", want, libs.stdout)
		}
	}
}

// What an exec leaves behind that is killed, the next one removes; of one that lives it touches nothing.
func TestStandaloneKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var killed, alive *program
	for _, p := range []**program{&killed, &alive} {
		*p = startExec(t, []string{"--standalone"}, "sh", "-c", "echo ready; exec sleep 60")
		until(t, *p, "ready")
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed.ended
	if got := command(t, nil, softnicd, "exec", "--standalone", "--", "true"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v: want the folder of the one that lives", left, err)
	}
	if err := alive.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-alive.ended
	empty(t, os.Getenv("TMPDIR"))
}

// Without a compiler exec says so, and what else there is; libraries that were made before need none.
func TestNoCompiler(t *testing.T) {
	program := elsewhere(t)
	environ := []string{"XDG_CACHE_HOME=" + t.TempDir(), "PATH=/nowhere"}
	got := command(t, environ, program, "exec", "--standalone", "--", "/bin/true")
	for _, want := range []string{"no C compiler", "apt-get install gcc", "SOFTNICD_LIBS"} {
		if got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
		}
	}
	made := filepath.Join(filepath.Dir(filepath.Dir(softnicd)), "lib", "softnicd")
	if got := command(t, append(environ, "SOFTNICD_LIBS="+made), program, "exec", "--standalone", "--", "/bin/true"); got.code != 0 {
		t.Errorf("with libraries: %+v", got)
	}
	if got := command(t, append(environ, "SOFTNICD_LIBS=/nowhere"), program, "exec", "--standalone", "--", "/bin/true"); got.code != 1 || !strings.Contains(got.stderr, "has no libibverbs.so.1") {
		t.Errorf("with libraries that are not there: %+v", got)
	}
}
