package dropin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// compiler is the C compiler of this machine.
type compiler struct {
	command []string // with what $CC adds to it
	version string   // what it says of itself
}

// ErrNoCompiler says what to do on a machine that has none.
var ErrNoCompiler = errors.New(`no C compiler: the libraries for unmodified programs are compiled on first use. Install one
(apt-get install gcc libc6-dev), name one in CC, or run "softnicd libs --dir DIR" where there is one, bring DIR here and name
it in SOFTNICD_LIBS`)

// findCompiler finds $CC, cc, gcc or clang.
func findCompiler(ctx context.Context) (*compiler, error) {
	candidates := []string{"cc", "gcc", "clang"}
	if cc := os.Getenv("CC"); cc != "" {
		candidates = []string{cc}
	}
	for _, name := range candidates {
		words := strings.Fields(name)
		if len(words) == 0 {
			continue
		}
		path, err := exec.LookPath(words[0])
		if err != nil {
			continue
		}
		c := &compiler{command: append([]string{path}, words[1:]...)}
		// Its first words name it and its release; -v adds the target, in the language of nobody.
		out, err := c.run(ctx, "", "--version")
		if err != nil {
			return nil, err
		}
		target, err := c.run(ctx, "", "-dumpmachine")
		if err != nil {
			return nil, err
		}
		c.version = string(out) + string(target)
		return c, nil
	}
	if cc := os.Getenv("CC"); cc != "" {
		return nil, fmt.Errorf("CC names %q, which is not there; %w", cc, ErrNoCompiler)
	}
	return nil, ErrNoCompiler
}

// run runs the compiler in a folder and returns what it printed. What it complains of is the error.
func (c *compiler) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.command[0], append(c.command[1:len(c.command):len(c.command)], args...)...)
	cmd.Dir = dir
	// The compiler is not to be run under what it makes, and is to speak so that the hash stays.
	cmd.Env = append(withoutOurs(os.Environ()), "LC_ALL=C")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		hint := ""
		if strings.Contains(text, "fatal error") && strings.Contains(text, ".h") {
			hint = "\nthe C library's headers are missing: apt-get install libc6-dev"
		}
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(c.command, " "), err, cmp.Or(text, "it says nothing"), hint)
	}
	return stdout.Bytes(), nil
}
