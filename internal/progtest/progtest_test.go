package progtest

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// ender is a test that says how it ended.
type ender struct {
	testing.TB
	how string
}

func (e *ender) Helper()               {}
func (e *ender) Fatalf(string, ...any) { e.end("failed") }
func (e *ender) Skipf(string, ...any)  { e.end("skipped") }

// end goes on, unlike a real one: the first word holds.
func (e *ender) end(how string) {
	if e.how == "" {
		e.how = how
	}
}

// What is missing is skipped by name, but not where CI says that everything is there.
func TestMissing(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		e := &ender{}
		if Need(e, "no-such-program-of-softnicd"); e.how != want {
			t.Errorf("CI=%s: %q, want %q", ci, e.how, want)
		}
	}
	if path := Need(t, "go"); !strings.HasSuffix(path, "/go") {
		t.Errorf("go is at %q", path)
	}
}

func TestCleanEnv(t *testing.T) {
	t.Setenv("SOFTNICD_WHATEVER", "1")
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	t.Setenv("SOFTNIC_TEST_LINK", "udp")
	CleanEnv()
	for name, want := range map[string]bool{"SOFTNICD_WHATEVER": false, "NOTIFY_SOCKET": false, "SOFTNIC_TEST_LINK": true} {
		if _, there := os.LookupEnv(name); there != want {
			t.Errorf("%s: %v", name, there)
		}
	}
}

func TestBuffer(t *testing.T) {
	var b Buffer
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				_, _ = b.Write([]byte("x"))
				_ = b.String()
			}
		})
	}
	wg.Wait()
	if n := len(b.String()); n != 400 {
		t.Errorf("%d bytes", n)
	}
}
