package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/softnic/softnicd/internal/nettest"
)

// softnicd is the program under test.
var softnicd string

// testLink is what the daemons stand on, if it is not the default: raw needs CAP_NET_RAW, which root in a namespace has.
var testLink = os.Getenv("SOFTNIC_TEST_LINK")

func TestMain(m *testing.M) { os.Exit(nettest.Run(m, build)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "softnicd-hosts-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	softnicd = filepath.Join(dir, "softnicd")
	c := exec.Command("go", "build", "-o", softnicd, "../../cmd/softnicd")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	// Whatever the caller has configured is not for these daemons.
	for _, name := range []string{"SOCKET", "DEVICE", "CONFIG", "PORT", "CAPTURE", "LOG_LEVEL", "RECLAIM", "PROFILE", "PKEY", "LINK"} {
		os.Unsetenv("SOFTNICD_" + name)
	}
	os.Unsetenv("NOTIFY_SOCKET")
	return m.Run()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is for calls whose failure is the end of the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
