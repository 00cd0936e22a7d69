package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// softnicd is the program under test.
var softnicd string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "softnicd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Another user runs it too.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	softnicd = filepath.Join(dir, "softnicd")
	if err := progtest.Build(softnicd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	progtest.CleanEnv()
	return m.Run()
}

// result is how a program ended.
type result struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// softnic runs the program to its end, which must come within limit.
func softnic(t testing.TB, limit time.Duration, args ...string) result {
	t.Helper()
	return finish(t, limit, exec.Command(softnicd, args...))
}

// finish runs a command to its end, which must come within limit.
func finish(t testing.TB, limit time.Duration, c *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { c.Process.Kill() })
	err := c.Wait()
	stop()
	r := result{c.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(begin)}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%v did not end within %v\nstdout: %s\nstderr: %s", c.Args, limit, r.stdout, r.stderr)
	}
	return r
}

// needRoot skips a test that needs privileges.
func needRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root: %s", what)
	}
}

// slow skips a test that takes long.
func slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
}

// within runs a timing test again if it failed, for a machine may be busy with something else: what softnicd does in time
// it does in time in one of three attempts.
func within(t *testing.T, limit time.Duration, attempt func(t *testing.T) time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 3 {
		d := attempt(t)
		took = append(took, d)
		if d <= limit {
			t.Logf("took %v", took)
			return
		}
	}
	t.Errorf("took %v in three attempts, promised are %v", took, limit)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is for calls whose failure is the end of the test, or of the process that plays a role.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
