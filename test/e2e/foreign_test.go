package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Another user's application may not register memory of its own, which could stall the device of all: it is told so in a
// sentence, and shared memory works.
func TestForeignMemory(t *testing.T) {
	needRoot(t, "to run processes of two users")
	dir := publicDir(t)
	// The test binary itself lies where other users may not look.
	program := filepath.Join(dir, "e2e.test")
	b, err := os.ReadFile(must(os.Executable()))
	check(t, err)
	check(t, os.WriteFile(program, b, 0o755))

	for _, c := range []struct {
		name           string
		daemon, client func(*exec.Cmd)
		user           string
	}{
		{"root's application", asNobody, func(*exec.Cmd) {}, "user 0 "},
		{"a user's application", func(*exec.Cmd) {}, asNobody, "user 65534 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDaemon(t, "--device", onLoopback)
			d.socket = filepath.Join(publicDir(t), "s")
			d.cmd.Args = append(d.cmd.Args, "--socket", d.socket)
			c.daemon(d.cmd)
			d.start()
			check(t, os.Chmod(d.socket, 0o666)) // as its group would be let in
			a := cast(t, "foreign", d.socket, c.client, func(c *exec.Cmd) { c.Path = program })
			if own := heard[address](t, a, "own"); !strings.Contains(own.Err, c.user) || !strings.Contains(own.Err, "AllocBuffer") {
				t.Errorf("memory of its own: %q", own.Err)
			}
			if shared := heard[address](t, a, "shared"); shared.Err != "" {
				t.Errorf("shared memory: %s", shared.Err)
			}
		})
	}
}
