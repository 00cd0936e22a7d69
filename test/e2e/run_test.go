package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

const onLoopback = "softnic0=127.0.0.1"

// SIGTERM drains: what was posted is flushed, then DEVICE_FATAL, then the session ends; exit code 0 within 2 s.
func TestRunDrains(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	ctx := d.open("softnic0")
	a, b := newSide(ctx, 1<<16), newSide(ctx, 1<<16)
	join(a, b)
	for id := range uint64(3) {
		check(t, a.recv(id, 0, 64))
	}
	check(t, b.recv(9, 0, 64))

	begin := time.Now()
	d.signal(syscall.SIGTERM)
	for id := range uint64(3) {
		if wc, err := a.next(timeout(t)); err != nil || wc.WRID != id || wc.Status != ib.WCWRFlushErr {
			t.Fatalf("receive %d: %+v, %v", id, wc, err)
		}
	}
	if wc, err := b.next(timeout(t)); err != nil || wc.WRID != 9 || wc.Status != ib.WCWRFlushErr {
		t.Fatalf("receive of the other queue pair: %+v, %v", wc, err)
	}
	e, err := ctx.AsyncEvent(timeout(t))
	if err != nil || e.Type != ib.EventDeviceFatal {
		t.Fatalf("event %v, %v, want DEVICE_FATAL", e.Type, err)
	}
	if _, err := ctx.AsyncEvent(timeout(t)); !isFatal(err) {
		t.Errorf("after DEVICE_FATAL: %v", err)
	}
	if _, err := a.next(timeout(t)); !isFatal(err) {
		t.Errorf("a wait after the end: %v", err)
	}
	if _, err := ctx.AllocPD(); !isFatal(err) {
		t.Errorf("a request after the end: %v", err)
	}
	if code := d.wait(2*time.Second - time.Since(begin)); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
	t.Logf("ended after %v", time.Since(begin))
	if _, err := os.Stat(d.socket); !os.IsNotExist(err) {
		t.Errorf("the control socket is still there: %v", err)
	}
}

// An application that reads nothing does not hold the daemon up for longer than 2 s, and SIGINT is as good as SIGTERM.
func TestRunDrainsDeaf(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	ctx := d.open("softnic0")
	for range 20 {
		a, b := newSide(ctx, 4096), newSide(ctx, 4096)
		join(a, b)
		must(a.cq.ReqNotify(false))
		check(t, a.recv(1, 0, 64))
	}
	begin := time.Now()
	d.signal(syscall.SIGINT)
	if code := d.wait(2 * time.Second); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.stderr.String())
	}
	t.Logf("ended after %v", time.Since(begin))
}

// Neither does one that was stopped in the middle of its waits, or a stranger that only connects.
func TestRunDrainsStopped(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	w := cast(t, "watcher", d.socket)
	w.hear("ready")
	check(t, w.cmd.Process.Signal(syscall.SIGSTOP))
	for range 10 {
		c, err := net.Dial("unixpacket", d.socket)
		check(t, err)
		defer c.Close()
	}
	begin := time.Now()
	d.stop()
	t.Logf("ended after %v", time.Since(begin))
}

func TestRunUsage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		env  string
		says []string
	}{
		{"flag", []string{"--nosuch"}, "", []string{"--nosuch", "--help"}},
		{"argument", []string{"now"}, "", []string{"now"}},
		{"port", []string{"--port", "65536"}, "", []string{"--port", "65536"}},
		{"variable", nil, "SOFTNICD_PORT=many", []string{"SOFTNICD_PORT", "many"}},
		{"device without target", []string{"--device", "softnic0"}, "", []string{"softnic0", "NAME=INTERFACE"}},
		{"device name", []string{"--device", "a/b=lo"}, "", []string{"a/b"}},
		{"same name twice", []string{"--device", "a=lo", "--device", "a=127.0.0.2"}, "", []string{"two devices", "a"}},
		{"log level", []string{"--log-level", "loud"}, "", []string{"log-level", "loud"}},
		{"no file", []string{"--config", dir + "/none.yaml"}, "", []string{"none.yaml"}},
		{"unknown key", []string{"--config", file("key.yaml", "port: 4000\ndevcie: [a=lo]\n")}, "", []string{"key.yaml", "devcie", "2:1"}},
		{"wrong type", []string{"--config", file("type.yaml", "socket: a\n\nport: many\n")}, "", []string{"type.yaml", "port: many", "3:7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(softnicd, append([]string{"run", "--socket", dir + "/s"}, c.args...)...)
			cmd.Env = append(os.Environ(), c.env)
			r := finish(t, patience, cmd)
			if r.code != 2 {
				t.Errorf("exit code %d", r.code)
			}
			for _, s := range c.says {
				if !strings.Contains(r.stderr, s) {
					t.Errorf("%q does not name %q", r.stderr, s)
				}
			}
		})
	}
}

// What the machine lacks or somebody else has: exit 3 and one sentence that says what to do.
func TestRunTaken(t *testing.T) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	defer c.Close()
	port := strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port)
	run := func(args ...string) result {
		return softnic(t, patience, append([]string{"run", "--log-level", "warn"}, args...)...)
	}
	free := strconv.Itoa(freePort(t))
	socket := filepath.Join(t.TempDir(), "s")
	oneSentence(t, run("--socket", socket, "--port", port, "--device", onLoopback), 3, "port "+port, "127.0.0.1", "stop it or")
	oneSentence(t, run("--socket", socket, "--port", free, "--device", "a=nosuch0"), 3, "nosuch0", "it has", "lo (")
	oneSentence(t, run("--socket", socket, "--port", free, "--device", "a=192.0.2.77"), 3, "192.0.2.77", "it has", "lo (")

	d := startDaemon(t, "--device", onLoopback)
	oneSentence(t, run("--socket", d.socket, "--port", free, "--device", onLoopback), 3, d.socket, "another daemon", "stop that one or choose another")
	// The living one has not noticed.
	if list, err := verbs.Devices(verbs.WithSocket(d.socket)); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	oneSentence(t, run("--socket", filepath.Join(t.TempDir(), "x"), "--port", strconv.Itoa(d.port), "--device", onLoopback), 3, strconv.Itoa(d.port), "stop it or")

	// No directory for the socket, and no place for the capture, are ordinary failures.
	oneSentence(t, run("--socket", "/nosuch/dir/s", "--port", free, "--device", onLoopback), 1, "/nosuch/dir/s", "--socket")
	oneSentence(t, run("--socket", socket, "--port", free, "--device", onLoopback, "--capture", "/nosuch/c.pcapng"), 1, "capture", "/nosuch/c.pcapng")
}

// A killed daemon leaves its socket behind; the next one replaces it.
func TestRunStaleSocket(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	d.signal(syscall.SIGKILL)
	d.wait(patience)
	if _, err := os.Stat(d.socket); err != nil {
		t.Fatal(err)
	}
	if r := softnic(t, patience, "devinfo", "--socket", d.socket); r.code != 1 || !strings.Contains(r.stderr, "softnicd run") {
		t.Errorf("devinfo without a daemon: exit code %d, %q", r.code, r.stderr)
	}
	next := newDaemon(t, "--device", onLoopback, "--socket", d.socket)
	next.socket = d.socket
	next.start()
	next.stop()
}

// The file has a key for everything, a variable beats it, a flag beats both.
func TestRunConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "softnicd.yaml")
	capture := filepath.Join(dir, "all.pcapng")
	d := newDaemon(t)
	check(t, os.WriteFile(file, fmt.Appendf(nil, `# every key there is
device:
  - one=127.0.0.1
  - two=127.0.0.2
socket: %s
capture: %s
log-level: warn
port: %d
`, d.socket, capture, d.port), 0o600))
	d.cmd.Args = []string{softnicd, "run", "--config", file}
	d.start()
	if got := deviceNames(t, d.socket); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("devices %v", got)
	}
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		if c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip), Port: d.port}); err == nil {
			c.Close()
			t.Errorf("%s port %d is not the daemon's", ip, d.port)
		}
	}
	d.stop()
	if frames := readPcapng(t, capture); len(frames) != 0 {
		t.Errorf("%d packets in the capture of a daemon that did nothing", len(frames))
	}
	if s := d.stderr.String(); s != "" {
		t.Errorf("at log-level warn it says %q", s)
	}

	// Variables beat the file.
	v := newDaemon(t)
	v.cmd.Args = []string{softnicd, "run"}
	v.cmd.Env = append(os.Environ(), "SOFTNICD_CONFIG="+file, "SOFTNICD_SOCKET="+v.socket, "SOFTNICD_DEVICE=three=127.0.0.1",
		"SOFTNICD_PORT="+strconv.Itoa(v.port), "SOFTNICD_LOG_LEVEL=info", "SOFTNICD_CAPTURE=")
	v.start()
	if got := deviceNames(t, v.socket); !slices.Equal(got, []string{"three"}) {
		t.Errorf("devices %v", got)
	}
	if !strings.Contains(v.stderr.String(), "level=INFO") {
		t.Errorf("at log-level info it says %q", v.stderr.String())
	}
	v.stop()

	// Flags beat variables.
	f := newDaemon(t, "--device", "four=127.0.0.1", "--log-level", "error")
	f.cmd.Env = append(os.Environ(), "SOFTNICD_CONFIG="+file, "SOFTNICD_SOCKET=/nosuch/s", "SOFTNICD_DEVICE=three=127.0.0.1",
		"SOFTNICD_PORT=1", "SOFTNICD_LOG_LEVEL=info")
	f.start()
	if got := deviceNames(t, f.socket); !slices.Equal(got, []string{"four"}) {
		t.Errorf("devices %v", got)
	}
	f.stop()
}

func deviceNames(t *testing.T, socket string) (names []string) {
	t.Helper()
	list, err := verbs.Devices(verbs.WithSocket(socket))
	check(t, err)
	for _, d := range list {
		names = append(names, d.Name)
	}
	return names
}

// Without --device each interface that is up and has an address has a device.
func TestRunDefaultDevices(t *testing.T) {
	d := startDaemon(t)
	got := map[string]string{} // interface: device
	for _, name := range deviceNames(t, d.socket) {
		ctx := d.open(name)
		p, err := ctx.QueryPort(1)
		check(t, err)
		got[strings.TrimRight(string(p.Netdev[:]), "\x00")] = name
	}
	all, err := net.Interfaces()
	check(t, err)
	n := 0
	for _, i := range all {
		addrs, err := i.Addrs()
		check(t, err)
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagRunning == 0 || len(addrs) == 0 {
			continue
		}
		if want := fmt.Sprintf("softnic%d", n); got[i.Name] != want {
			t.Errorf("interface %s has device %q, want %s", i.Name, got[i.Name], want)
		}
		n++
	}
	if len(got) != n || got["lo"] == "" {
		t.Errorf("devices %v for %d interfaces", got, n)
	}
}

// The daemon tells systemd when it is ready and when it stops.
func TestRunNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	check(t, err)
	defer l.Close()
	hear := func(want string) {
		t.Helper()
		var b [256]byte
		l.SetReadDeadline(time.Now().Add(patience))
		n, err := l.Read(b[:])
		if err != nil || string(b[:n]) != want {
			t.Fatalf("%q, %v, want %q", b[:n], err, want)
		}
	}
	d := newDaemon(t, "--device", onLoopback)
	d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	d.launch()
	hear("READY=1")
	// Ready is ready: no retry.
	if got := deviceNames(t, d.socket); len(got) != 1 {
		t.Errorf("devices %v", got)
	}
	d.signal(syscall.SIGTERM)
	hear("STOPPING=1")
	if code := d.wait(2 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// systemd's socket activation: the listener comes as descriptor 3, with its own process number in LISTEN_PID.
func TestRunActivation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "activated")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	check(t, err)
	defer l.Close()
	activate := func(l interface{ File() (*os.File, error) }) *daemon {
		f, err := l.File()
		check(t, err)
		d := newDaemon(t, "--device", onLoopback)
		d.cmd.Path = must(exec.LookPath("sh"))
		d.cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`}, d.cmd.Args...)
		d.cmd.ExtraFiles = []*os.File{f}
		t.Cleanup(func() { f.Close() })
		return d
	}
	d := activate(l)
	own := d.socket
	d.socket = path
	d.start()
	if got := deviceNames(t, path); len(got) != 1 {
		t.Errorf("devices %v", got)
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("it made a socket of its own as well: %v", err)
	}
	d.stop()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("systemd's socket is gone: %v", err)
	}

	// A stream socket is a mistake in the unit, and is named.
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "2", Net: "unix"})
	check(t, err)
	defer stream.Close()
	wrong := activate(stream)
	wrong.launch()
	if code := wrong.wait(patience); code == 0 || !strings.Contains(wrong.stderr.String(), "SOCK_SEQPACKET") {
		t.Errorf("exit code %d, %q", code, wrong.stderr.String())
	}
}

// nobody is an ordinary user.
const nobody = 65534

// asNobody runs a command as an ordinary user.
func asNobody(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// publicDir is a directory that anybody can write, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "softnicd-e2e-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o777))
	return dir
}

// An ordinary user runs the daemon and the demo.
func TestRunOrdinaryUser(t *testing.T) {
	needRoot(t, "to become an ordinary user; every other test of this package shows it otherwise")
	d := newDaemon(t, "--device", onLoopback)
	d.socket = filepath.Join(publicDir(t), "s")
	d.cmd.Args = append(d.cmd.Args, "--socket", d.socket)
	asNobody(d.cmd)
	d.start()
	st, err := os.Stat(d.socket)
	check(t, err)
	if m := st.Mode().Perm(); m != 0o660 {
		t.Errorf("the control socket has mode %o: its user and group alone may connect", m)
	}
	d.stop()

	c := exec.Command(softnicd, "demo", "--port", strconv.Itoa(freePort(t)), "--mr", "process")
	asNobody(c)
	if r := finish(t, patience, c); r.code != 0 {
		t.Errorf("the demo: exit code %d\n%s", r.code, r.stderr)
	}
}
