package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// Every mutant still fits the product: its text stands where it says, exactly once, and what it makes of a Go file is Go.
func TestNoMutantHasRotted(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		if names[m.name] || m.name == "" || strings.Contains(m.name, "|") {
			t.Errorf("the name %q is taken, or none", m.name)
		}
		names[m.name] = true
		if len(m.edits) == 0 || len(m.tests) == 0 {
			t.Errorf("mutant %q changes nothing, or nobody looks for it", m.name)
		}
		for _, tests := range m.tests {
			pkg, _, _ := strings.Cut(tests, " ")
			if found, _ := filepath.Glob(filepath.Join(root, pkg, "*_test.go")); len(found) == 0 {
				t.Errorf("mutant %q: %s has no tests", m.name, pkg)
			}
		}
		files, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		for name, text := range files {
			if strings.HasSuffix(name, "_test.go") {
				t.Errorf("mutant %q spoils a test, not the product", m.name)
			}
			if !strings.HasSuffix(name, ".go") {
				continue
			}
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
				t.Errorf("mutant %q: %v", m.name, err)
			}
		}
	}
	if len(names) < 20 {
		t.Errorf("%d mutants are too few", len(names))
	}
}

// The page has a line for every mutant, and no other.
func TestPageIsComplete(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "mutants.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, m := range mutants() {
		if !strings.Contains(page, "\n| "+m.name+" | ") {
			t.Errorf("docs/mutants.md does not know %q: run make mutants-page", m.name)
		}
	}
	if got, want := strings.Count(page, "\n| "), len(mutants())+1; got != want {
		t.Errorf("docs/mutants.md has %d lines, not %d: run make mutants-page", got, want)
	}
	if strings.Contains(page, "it lives") {
		t.Error("a mutant lives")
	}
}

// Three of them, tried: one that scripts catch, one that the simulator has to catch alone, and one of another package.
func TestSomeMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds test binaries")
	}
	l, err := newLaboratory(200, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, c := range []struct {
		name string
		sim  bool
	}{
		{"any PSN is accepted", true},
		{"the flush skips the first request", false},
		{"a doorbell sets the top before the leaf", false},
	} {
		chosen, err := choose(mutants(), "^"+c.name+"$")
		if err != nil {
			t.Fatal(err)
		}
		m := chosen[0]
		if c.sim {
			m.tests = nil
		}
		v, err := l.try(&m)
		if err != nil {
			t.Fatal(err)
		}
		if !v.caught() {
			t.Errorf("nothing catches %q", m.name)
		}
		t.Logf("%s: %+v", m.name, v)
	}
}

// A text that is gone, or stands there twice, is an error and no mutant.
func TestApplyRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		edit edit
		ok   bool
	}{
		{edit{"a.go", "one", "three"}, true},
		{edit{"a.go", "two", "three"}, false},
		{edit{"a.go", "four", "three"}, false},
		{edit{"b.go", "one", "three"}, false},
	} {
		m := mutant{name: "m", edits: []edit{c.edit}}
		files, err := m.apply(dir)
		if (err == nil) != c.ok {
			t.Errorf("%v: %v", c.edit, err)
		}
		if c.ok && files["a.go"] != "three two two\n" {
			t.Errorf("%v: %q", c.edit, files["a.go"])
		}
	}
	again := mutant{name: "m", edits: []edit{{"a.go", "one", "three"}, {"a.go", "three", "five"}}}
	if files, err := again.apply(dir); err != nil || files["a.go"] != "five two two\n" {
		t.Errorf("the second edit does not see the first: %v %v", files, err)
	}
}

func TestReadsOutputs(t *testing.T) {
	for _, c := range []struct{ out, test string }{
		{"--- FAIL: TestA (0.00s)\n    x_test.go:1: bad\nFAIL\n", "TestA"},
		{"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/second_case (0.00s)\n        x\n    --- FAIL: TestA/third (0.00s)\nFAIL\n", "TestA/second_case"},
		{"--- FAIL: TestB (0.00s)\npanic: x\n", "TestB"},
		{"panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestC (1m0s)\n", "TestC does not end"},
		{"fatal error: concurrent map writes\n", "the test binary dies"},
	} {
		if got := failedTest([]byte(c.out)); got != c.test {
			t.Errorf("%q: %q, not %q", c.out, got, c.test)
		}
	}
	seed, ok := firstSeed([]byte("x_test.go:1: seed 71: two runs differ\n  seed 12: at 3 us: lost\n"))
	if !ok || seed != 12 {
		t.Errorf("seed %d, %v", seed, ok)
	}
	if _, ok := firstSeed([]byte("PASS\n")); ok {
		t.Error("a seed where there is none")
	}
}
