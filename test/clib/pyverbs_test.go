package clib

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

const (
	shipped = "/usr/share/doc/rdma-core/tests" // by Debian's rdma-core
	python  = "/usr/bin/python3"               // for which python3-pyverbs is
	page    = "../../docs/pyverbs.md"
)

// modules are those that are not of a vendor and not of rdma_cm.
var modules = []string{
	"addr", "atomic", "cq", "cq_events", "cqex", "cuda_dmabuf", "device", "flow", "fork", "mr", "odp", "parent_domain", "pd", "qp",
	"qpex", "relaxed_ordering", "rss_traffic", "shared_pd", "tag_matching",
}

// Every test passes, or docs/pyverbs.md says why not; and what is said there is still so.
func TestPyverbs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	if _, err := os.Stat("/usr/lib/python3/dist-packages/pyverbs"); err != nil {
		progtest.Missing(t, "python3-pyverbs")
	}
	dir := unpack(t)
	reasons := readPage(t)
	results := map[string]string{}
	args := []string{"exec", "--socket", socket, "--", python, filepath.Join(dir, "tests", "run_tests.py"), "-v", "--dev", "softnic0"}
	for _, m := range modules {
		args = append(args, "tests.test_"+m)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, softnicd, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "SOFTNICD_LIBS="+plain.libraries(t))
	out, err := output(c)
	parse(out, results)
	if err := complete(out, err, len(results)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if results[name] == "" {
			t.Errorf("%s has no result, but a line in %s", name, page)
		}
	}
	passed := 0
	for _, name := range slices.Sorted(maps.Keys(results)) {
		got := results[name]
		switch reason := reasons[name]; {
		case got == "ok":
			passed++
			if reason != "" && !strings.HasPrefix(reason, "or ") {
				t.Errorf("%s passes, %s says that it does not: %s", name, page, reason)
			}
		case strings.HasPrefix(got, "skipped"):
			if reason == "" || strings.HasPrefix(reason, "fails: ") {
				t.Errorf("%s: %s; %s says: %q", name, got, page, reason)
			}
		case !strings.HasPrefix(reason, "fails: "):
			t.Errorf("%s: %s", name, got)
		}
	}
	if t.Failed() {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d of %d pass", passed, len(results))
}

// ran is unittest's last line but one.
var ran = regexp.MustCompile(`(?m)^Ran (\d+) tests? in `)

// complete returns an error if a run, which printed so many results, did not come to its end. Tests that fail make it exit 1.
func complete(out string, result error, results int) error {
	m := ran.FindStringSubmatch(out)
	if m == nil {
		return fmt.Errorf("the run died after %d tests: %v", results, result)
	}
	if n, _ := strconv.Atoi(m[1]); n != results || n == 0 {
		return fmt.Errorf("%s tests ran, but %d results were understood", m[1], results)
	}
	if exit, ok := errors.AsType[*exec.ExitError](result); result != nil && (!ok || exit.ExitCode() != 1) {
		return fmt.Errorf("the run ended badly: %w", result)
	}
	return nil
}

// A run that dies is not taken for one that ended, however much it has printed.
func TestComplete(t *testing.T) {
	const out = "test_a (tests.test_cq.CQTest.test_a) ... ok\n"
	const end = "\n----\nRan 1 test in 0.001s\n\nOK\n"
	exit := func(how string) error { return exec.Command("sh", "-c", how).Run() }
	for _, c := range []struct {
		out     string
		result  error
		results int
		want    bool
	}{
		{out + end, nil, 1, true}, {out + end, exit("exit 1"), 1, true}, {out, nil, 1, false}, {out, exit("exit 1"), 1, false},
		{out + end, exit("exit 2"), 1, false}, {out + end, exit("kill -SEGV $$"), 1, false}, {out + end, context.DeadlineExceeded, 1, false},
		{out + end, nil, 2, false}, {"\nRan 0 tests in 0.000s\n", nil, 0, false},
	} {
		if err := complete(c.out, c.result, c.results); (err == nil) != c.want {
			t.Errorf("%q, %v: %v", c.out, c.result, err)
		}
	}
}

// unpack copies the tests, some of which are shipped compressed.
func unpack(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(shipped + "/*")
	if err != nil || len(files) == 0 {
		progtest.Missing(t, "the tests in "+shipped)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tests"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if err := unpackFile(name, filepath.Join(dir, "tests", strings.TrimSuffix(filepath.Base(name), ".gz"))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func unpackFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(from, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return err
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

var (
	// A test's line begins with its name and class, and its result follows there or, behind its description, on the next line.
	testLine   = regexp.MustCompile(`^(test_\w+) \(tests\.test_(\w+)\.(\w+)\.test_\w+\)`)
	resultText = regexp.MustCompile(`(?:\.\.\. |^)(ok|FAIL|ERROR|skipped '.*')$`)
)

// parse reads what unittest prints with -v. Between "..." and the result stands what the library says.
func parse(out string, results map[string]string) {
	name := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if m := testLine.FindStringSubmatch(line); m != nil {
			name = m[2] + "." + m[1]
		}
		if m := resultText.FindStringSubmatch(line); m != nil && name != "" {
			results[name] = m[1]
			name = ""
		}
	}
}

// readPage reads the table of tests that do not pass: | module | test, ... | reason |.
func readPage(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[1], "test_") {
			continue
		}
		for name := range strings.FieldsFuncSeq(cells[1], func(r rune) bool { return r == ' ' || r == ',' || r == '`' }) {
			reasons[strings.Trim(cells[0], " `")+"."+name] = strings.TrimSpace(cells[2])
		}
	}
	return reasons
}
