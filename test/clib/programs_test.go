package clib

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

const programs = "../../dropin/test"

// compilation is a way to compile and run the programs.
type compilation struct {
	name    string
	flags   []string          // of the compiler, for library and programs
	before  []string          // the command, before the program
	without map[string]bool   // programs that make no sense
	args    map[string]string // of a program
}

var plain = compilation{name: "plain", flags: []string{"-O2"}}

var builds = []compilation{
	{
		name:  "sanitized",
		flags: []string{"-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"},
		args:  map[string]string{"test_register": "3000", "test_swap": "200"},
	},
	plain,
	{
		name:   "valgrind",
		flags:  []string{"-g"},
		before: []string{"valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"},
		args:   map[string]string{"test_register": "500", "test_swap": "20 quick"},
		// It makes of signals what it has time for, and says nothing of memory that test_rc does not.
		without: map[string]bool{"test_signals": true},
	},
}

// inShort are the programs that `go test -short` runs.
var inShort = map[string]bool{"test_rc": true, "test_wr": true, "test_cqex": true, "test_fork": true}

func TestPrograms(t *testing.T) {
	sources, err := filepath.Glob(programs + "/test_*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	if err := exec.Command("cc", "-E", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null", "-o", "/dev/null").Run(); err != nil {
		progtest.Missing(t, "infiniband/verbs.h")
	}
	for _, b := range builds {
		if chosen := "sanitized"; !*full {
			if testing.Short() {
				chosen = "plain"
			}
			if b.name != chosen {
				continue
			}
		}
		t.Run(b.name, func(t *testing.T) {
			if len(b.before) > 0 {
				progtest.Need(t, b.before[0])
			}
			libs := b.libraries(t)
			for _, source := range sources {
				name := strings.TrimSuffix(filepath.Base(source), ".c")
				if b.without[name] || testing.Short() && !inShort[name] {
					continue
				}
				t.Run(strings.TrimPrefix(name, "test_"), func(t *testing.T) {
					// What measures time runs alone.
					if name != "test_register" {
						t.Parallel()
					}
					b.run(t, name, b.compile(t, source, libs), libs)
				})
			}
		})
	}
}

// libraries compiles the libraries with the flags of a build.
func (b *compilation) libraries(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(folder, b.name)
	c := exec.Command(softnicd, "libs", "--dir", dir)
	c.Env = append(os.Environ(), "CC=cc "+strings.Join(append([]string{"-Wextra", "-Werror"}, b.flags...), " "))
	if out, err := output(c); err != nil {
		t.Fatalf("softnicd libs: %v\n%s", err, out)
	}
	return dir
}

func (b *compilation) compile(t *testing.T, source, libs string) string {
	t.Helper()
	program := filepath.Join(libs, strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"}, b.flags...)
	args = append(args, "-o", program, source, programs+"/testing.c")
	if !strings.HasSuffix(source, "_dlopen.c") {
		args = append(args, filepath.Join(libs, "libibverbs.so.1"))
	} else {
		args[len(args)-1] = "-ldl"
	}
	if out, err := output(exec.Command("cc", args...)); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return program
}

func (b *compilation) run(t *testing.T, name, program, libs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append(append([]string{}, b.before...), program)
	if a := b.args[name]; a != "" {
		args = append(args, strings.Fields(a)...)
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libs, "SOFTNICD_SOCKET="+socket, "TEST_DEVICE=softnic0")
	out, err := output(c)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	t.Log(strings.TrimSpace(out))
}
