package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
)

// Where nothing is there, scripts/test-deps installs it: as root by itself, else by sudo.
func TestDepsInstalls(t *testing.T) {
	bash := progtest.Need(t, "bash")
	for user, before := range map[string]string{"0": "", "1000": "sudo "} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"id":      "echo " + user,
			"apt-get": `echo "$SUDO$DEBIAN_FRONTEND apt-get $1" >> "` + dir + `/asked"`,
			"sudo":    `while [[ $1 == -* ]]; do shift; done; SUDO="sudo " "$@"`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!"+bash+"\n"+text+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command(bash, "../scripts/test-deps")
		c.Env = []string{"PATH=" + dir}
		out, err := c.CombinedOutput()
		asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
		want := strings.ReplaceAll("?noninteractive apt-get update\n?noninteractive apt-get install\n", "?", before)
		if err != nil || string(asked) != want || !strings.Contains(string(out), "tshark") {
			t.Errorf("user %s: %v, asked for %q, want %q\n%s", user, err, asked, want, out)
		}
	}
}
