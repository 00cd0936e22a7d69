package dropin

import (
	"slices"
	"testing"
)

// What is there before is read as ld.so reads it, and stays, behind ours.
func TestVariables(t *testing.T) {
	l := &Libraries{"/libs"}
	const ours = "/libs/libibverbs.so.1"
	for _, c := range []struct{ environ, name, want string }{
		{"", "LD_LIBRARY_PATH", "/libs"},
		{"LD_LIBRARY_PATH=", "LD_LIBRARY_PATH", "/libs"},
		{"LD_LIBRARY_PATH=/a folder:/b;/c", "LD_LIBRARY_PATH", "/libs:/a folder:/b:/c"},
		{"LD_LIBRARY_PATH=/a:", "LD_LIBRARY_PATH", "/libs:/a:"}, // and the working directory
		{"LD_LIBRARY_PATH=/a:/libs:/a", "LD_LIBRARY_PATH", "/libs:/a"},
		{"", "LD_PRELOAD", ours},
		{"LD_PRELOAD=a.so b.so:c.so", "LD_PRELOAD", ours + ":a.so:b.so:c.so"},
		{"LD_PRELOAD=:" + ours + " ", "LD_PRELOAD", ours},
	} {
		if got := l.Variables([]string{"X=y", c.environ}, false)[c.name]; got != c.want {
			t.Errorf("%q: %s is %q, want %q", c.environ, c.name, got, c.want)
		}
	}
}

// No variable is there twice.
func TestEnviron(t *testing.T) {
	got := Environ([]string{"A=1", "B=2", "A=3", "C"}, map[string]string{"A": "4", "D": ""})
	want := []string{"B=2", "C", "A=4", "D="}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
