package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// laboratory builds and runs test binaries, with and without a mutant.
type laboratory struct {
	root   string // of the module
	folder string // everything that is written
	seeds  int
	both   bool // the simulator tries also what tests have caught
}

// How long tests may take that a mutant may keep from ending.
const (
	patience    = time.Minute
	simPatience = 10 * time.Minute
)

// newLaboratory finds the module.
func newLaboratory(seeds int, both bool) (*laboratory, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if !filepath.IsAbs(mod) {
		return nil, errors.New("not within the module")
	}
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	return &laboratory{root: filepath.Dir(mod), folder: folder, seeds: seeds, both: both}, nil
}

func (l *laboratory) close() { _ = os.RemoveAll(l.folder) }

// simulator is the package that is asked beside those of a mutant.
const simulator = "test/sim"

// verdict is what became of a mutant.
type verdict struct {
	test  string // that failed: package and name
	sim   string // how the simulator failed
	seeds int    // that it ran, the failing one included; 0 if it was not asked
}

func (v *verdict) caught() bool { return v.test != "" || v.sim != "" }

// sound runs what would catch mutants on the product as it is: what fails there catches nothing.
func (l *laboratory) sound(ms []mutant) error {
	seen := map[string]bool{}
	for i := range ms {
		for _, tests := range append([]string{simulator + " ^TestSeeds$"}, ms[i].tests...) {
			if seen[tests] {
				continue
			}
			seen[tests] = true
			out, failed, err := l.test(tests, "")
			if err != nil {
				return err
			}
			if failed {
				return fmt.Errorf("%s fails without any mutant:\n%s", tests, tail(out))
			}
		}
	}
	return nil
}

// try lets tests and the simulator look for a mutant, until one has caught it.
func (l *laboratory) try(m *mutant) (v verdict, err error) {
	list, err := m.overlay(l.root, l.folder)
	if err != nil {
		return v, err
	}
	for _, tests := range m.tests {
		out, failed, err := l.test(tests, list)
		if err != nil {
			return v, fmt.Errorf("mutant %q: %w", m.name, err)
		}
		if failed {
			pkg, _, _ := strings.Cut(tests, " ")
			v.test = pkg + " " + failedTest(out)
			break
		}
	}
	if v.caught() && !l.both {
		return v, nil
	}
	out, failed, err := l.test(simulator+" ^TestSeeds$", list)
	if err != nil {
		return v, fmt.Errorf("mutant %q: %w", m.name, err)
	}
	v.seeds = l.seeds
	if failed {
		seed, ok := firstSeed(out)
		v.sim = failedTest(out)
		if ok {
			v.seeds, v.sim = seed+1, fmt.Sprintf("seed %d", seed)
		}
	}
	return v, nil
}

// test builds the tests of a package, with an overlay if there is one, and runs them until one fails.
func (l *laboratory) test(tests, overlay string) (out []byte, failed bool, err error) {
	pkg, which, _ := strings.Cut(tests, " ")
	bin, err := l.build(pkg, overlay)
	if err != nil {
		return nil, false, err
	}
	out, failed = l.run(bin, pkg, which)
	return out, failed, nil
}

// build makes the test binary of a package. A mutant that does not compile is an error: it proves nothing.
func (l *laboratory) build(pkg, overlay string) (string, error) {
	bin := filepath.Join(l.folder, strings.ReplaceAll(pkg, "/", "+")+".test")
	args := []string{"test", "-c", "-o", bin}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "./"+pkg)...)
	cmd.Dir = l.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

func (l *laboratory) run(bin, pkg, which string) (out []byte, failed bool) {
	limit := patience
	if pkg == simulator {
		limit = simPatience
	}
	args := []string{"-test.short", "-test.failfast", "-test.timeout", limit.String(), "-test.run", which}
	if pkg == simulator {
		args = append(args, "-sim.seeds", strconv.Itoa(l.seeds))
	}
	// A mutant may take all the processors and never come to its own timeout.
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = filepath.Join(l.root, filepath.FromSlash(pkg))
	out, err := cmd.CombinedOutput()
	return out, err != nil
}

var (
	failLine = regexp.MustCompile(`(?m)^( *)--- FAIL: (\S+)`)
	running  = regexp.MustCompile(`running tests:\n\s*(\S+)`)
	seedLine = regexp.MustCompile(`\bseed (\d+): `)
)

// failedTest finds the name of the first test that failed, with its case.
func failedTest(out []byte) string {
	if m := running.FindSubmatch(out); m != nil {
		return string(m[1]) + " does not end"
	}
	name, depth := "", -1
	for _, m := range failLine.FindAllSubmatch(out, -1) {
		if len(m[1]) <= depth {
			break
		}
		name, depth = string(m[2]), len(m[1])
	}
	if name == "" {
		return "the test binary dies"
	}
	return name
}

// firstSeed finds the smallest seed that failed.
func firstSeed(out []byte) (seed int, ok bool) {
	for _, m := range seedLine.FindAllSubmatch(out, -1) {
		if n, err := strconv.Atoi(string(m[1])); err == nil && (!ok || n < seed) {
			seed, ok = n, true
		}
	}
	return seed, ok
}

// tail returns the end of a long output.
func tail(out []byte) []byte {
	const most = 4 << 10
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return bytes.TrimSpace(out)
}
