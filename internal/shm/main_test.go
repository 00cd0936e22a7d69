package shm

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary runs itself as the other process.
func TestMain(m *testing.M) {
	switch os.Getenv("SOFTNIC_SHM_CHILD") {
	case "robust":
		robustChild()
	case "connect":
		connectChild()
	case "sleep":
		time.Sleep(time.Minute)
	default:
		// The runtime opens the descriptors of its poller once: before anybody counts.
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		r.Close()
		w.Close()
		os.Exit(m.Run())
	}
}

// noLeak fails the test if it ends with other descriptors than it began with.
func noLeak(t *testing.T) {
	t.Helper()
	before := descriptors(t)
	t.Cleanup(func() {
		after := descriptors(t)
		for fd, name := range after {
			if _, ok := before[fd]; !ok {
				t.Errorf("descriptor %s leaked: %s", fd, name)
			}
		}
		for fd, name := range before {
			if _, ok := after[fd]; !ok {
				t.Errorf("descriptor %s was closed: %s", fd, name)
			}
		}
	})
}

func descriptors(t *testing.T) map[string]string {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	open := make(map[string]string)
	own := fmt.Sprint(dir.Fd())
	for _, fd := range names {
		target, _ := os.Readlink("/proc/self/fd/" + fd)
		if fd != own {
			open[fd] = target
		}
	}
	return open
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func closing(t *testing.T, fds ...int) {
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
}

func socketpair(t *testing.T) (a, b int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, pair[0], pair[1])
	return pair[0], pair[1]
}
