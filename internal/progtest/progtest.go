// Package progtest runs programs in tests: it builds softnicd, finds what else has to be installed, and keeps what is printed.
//
//	progtest.CleanEnv()
//	err := progtest.Build(filepath.Join(dir, "softnicd"))
//	tshark := progtest.Need(t, "tshark")
//	var out progtest.Buffer
//	c.Stderr = &out
package progtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Buffer keeps what a program prints. It may be read while the program still writes; the zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Missing ends a test for want of something that only development machines have. Where CI=true everything has to be there, and
// what is missing is a failure.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: scripts/test-deps installs it", what)
	}
	t.Skipf("%s is missing", what)
}

// Need returns where a program is, or ends a test for want of it.
func Need(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name)
	}
	return path
}

// CleanEnv takes out of the environment whatever the caller has configured of softnicd, and where systemd wants to hear of it:
// that is not for the daemons of a test.
func CleanEnv() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "SOFTNICD_") || name == "NOTIFY_SOCKET" {
			os.Unsetenv(name)
		}
	}
}

// Build builds softnicd as it is released, without cgo.
func Build(path string) error {
	c := exec.Command("go", "build", "-o", path, "github.com/softnic/softnicd/cmd/softnicd")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
