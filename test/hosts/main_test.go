package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/internal/progtest"
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
	if err := progtest.Build(softnicd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	progtest.CleanEnv()
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
