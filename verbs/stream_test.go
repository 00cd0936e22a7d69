package verbs_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/softnic/softnicd/verbs"
)

// The stream has what happened since it began, in order; a killed daemon ends it, and so does the reader's patience.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if _, err := verbs.Follow(verbs.WithSocket(path)); !errors.Is(err, verbs.ErrNoDaemon) {
		t.Errorf("without a daemon: %v", err)
	}
	daemon := spawn(t, "daemon", path)
	stream, err := verbs.Follow(verbs.WithSocket(path))
	check(t, err)
	defer stream.Close()
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if list, err := stream.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing happened: %v, %v", list, err)
	}
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var seen []verbs.DaemonEvent
	for range 3 {
		check(t, must(verbs.Open("", verbs.WithSocket(path))).Close())
	}
	for len(seen) < 6 {
		list, err := stream.Next(long)
		check(t, err)
		seen = append(seen, list...)
	}
	opened := map[uint64]bool{}
	for i, e := range seen {
		if e.Number != seen[0].Number+uint64(i) || e.Device != 0 || e.PID == 0 || time.Since(e.Time) > time.Minute {
			t.Errorf("event %d: %+v", i, e)
		}
		switch {
		case e.Kind == verbs.DaemonContextOpened && !opened[e.Context]:
			opened[e.Context] = true
		case e.Kind == verbs.DaemonContextClosed && opened[e.Context]:
		default:
			t.Errorf("event %d: %s of context %d", i, e.Kind, e.Context)
		}
	}
	status, err := verbs.Status(verbs.WithSocket(path))
	check(t, err)
	if len(status.Devices) != 1 || status.Devices[0].Name != "softnic0" || status.PID != daemon.Process.Pid || status.Sessions < 2 {
		t.Errorf("%+v", status)
	}
	check(t, daemon.Process.Kill())
	if list, err := stream.Next(long); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("after the daemon's death: %v, %v", list, err)
	}
}
