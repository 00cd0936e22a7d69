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
	words := strings.Fields(commands[0])
	for attempt := 1; attempt <= 5; attempt++ {
		c := exec.Command(words[0], words[1:]...)
		c.Dir = "../.."
		r := finish(t, 2*time.Minute, c)
		switch {
		case r.code != 0 && strings.Contains(r.stderr, "UDP port 4791"):
			// Somebody else has the port, another package's test perhaps. It is the one thing that may be in the way.
			if attempt == 5 {
				t.Skip(r.stderr)
			}
			time.Sleep(time.Second)
		case r.code != 0:
			t.Fatalf("exit code %d\n%s\n%s", r.code, r.stderr, r.stdout)
		case r.took < patience:
			checkText(t, r.stdout)
			return
		}
		// The first time it was built.
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
