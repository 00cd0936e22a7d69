package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The first two commands of the README are those that a stranger types, and the first works.
func TestReadme(t *testing.T) {
	commands := fenced(t, "../../README.md", "sh")
	if len(commands) < 2 || commands[0] != "go run ./cmd/softnicd demo" || commands[1] != "make test" {
		t.Fatalf("the README begins with %q", commands[:min(2, len(commands))])
	}
	slow(t)
	// Port 4791 may be somebody else's on this machine, and that is the one thing that may differ.
	for range 2 {
		words := strings.Fields(commands[0])
		c := exec.Command(words[0], words[1:]...)
		c.Dir = "../.."
		r := finish(t, time.Minute, c)
		if r.code != 0 && strings.Contains(r.stderr, "UDP port 4791") {
			t.Skipf("another softnicd is running here: %s", r.stderr)
		}
		if r.code != 0 {
			t.Fatalf("exit code %d\n%s\n%s", r.code, r.stderr, r.stdout)
		}
		checkText(t, r.stdout)
		if r.took < patience {
			return
		}
	}
	t.Errorf("after the build the demo still takes more than %v", patience)
}

// fenced returns the lines of the fenced blocks of a language in a Markdown file, without comments and blank lines.
func fenced(t *testing.T, path, language string) (list []string) {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	defer f.Close()
	in, wanted := false, false
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if mark, ok := strings.CutPrefix(line, "```"); ok {
			in = !in
			wanted = in && strings.TrimSpace(mark) == language
			continue
		}
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); wanted && line != "" {
			list = append(list, line)
		}
	}
	return list
}
