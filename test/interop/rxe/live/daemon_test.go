package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	progtest.CleanEnv()
	defer func() {
		if built != "" {
			os.RemoveAll(filepath.Dir(filepath.Dir(built)))
		}
		if booted != nil {
			booted.stop()
		}
	}()
	return m.Run()
}

var (
	built  string   // the program, once it is
	booted *machine // once any test has asked for it
)

// softnicd builds the program under test, and the libraries that exec loads where it looks for them.
var softnicd = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "softnicd-rxe-")
	if err != nil {
		return "", err
	}
	built = filepath.Join(dir, "bin", "softnicd")
	if err := progtest.Build(built); err != nil {
		return "", err
	}
	if _, err := exec.LookPath("cc"); err != nil {
		return built, nil // TestPrograms says so
	}
	if out, err := exec.Command(built, "libs", "--dir", filepath.Join(dir, "lib", "softnicd")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("softnicd libs: %v\n%s", err, out)
	}
	return built, nil
})

// daemon is softnicd with one device, on the bridge.
type daemon struct {
	socket string
	cmd    *exec.Cmd
	log    progtest.Buffer
	ended  chan struct{}
}

// startDaemon starts a daemon with more flags, until the end of the test. There can be one at a time.
func startDaemon(t *testing.T, m *machine, flags ...string) *daemon {
	t.Helper()
	program, err := softnicd()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{socket: filepath.Join(t.TempDir(), "s"), ended: make(chan struct{})}
	args := append([]string{program, "run", "--socket", d.socket, "--device", "softnic0=br0", "--log-level", "warn"}, flags...)
	d.cmd = m.beside(t.Context(), args...)
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.end()
		if t.Failed() {
			t.Logf("softnicd:\n%s", d.log.String())
		}
	})
	for late := time.After(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := verbs.Devices(verbs.WithSocket(d.socket)); err == nil {
			return d
		}
		select {
		case <-d.ended:
			t.Fatal("the daemon ended")
		case <-late:
			t.Fatal("the daemon does not answer")
		default:
		}
	}
}

func (d *daemon) end() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		d.kill()
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}
