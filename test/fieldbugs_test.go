package test

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Faults that users of RDMA devices really hit are in testdata/field-bugs.md, a row each, and those with a number as
// vulnerabilities, as far as the reliable connection can have them, in testdata/cves.csv. Every row has a test that bears its
// number: in its name, in the comment before it, or in a case of its table. docs/field-bugs.md says which, and
// is written by
//
//	go test ./test -run TestFieldBugs -update

var update = flag.Bool("update", false, "write docs/field-bugs.md")

const fieldBugsPage = "../docs/field-bugs.md"

// fieldBugsLater are rows about what is not built yet, and the part that brings it with their tests.
var fieldBugsLater = map[string]string{
	"B30": "connection management (rdma_cm)",
}

type fieldBug struct{ number, symptom, behaviour string }

func TestFieldBugs(t *testing.T) {
	rows := append(fieldBugs(t), vulnerabilities(t)...)
	tests := numberedTests(t)
	var page bytes.Buffer
	page.WriteString("# Faults from the field, and the tests that bear their numbers\n\n" +
		"Each row is a public report about another implementation. This page is written by `go test ./test -run TestFieldBugs -update`.\n\n" +
		"| # | what went wrong there | what is right | tests |\n|---|---|---|---|\n")
	for _, row := range rows {
		names := slices.Sorted(maps.Keys(tests[row.number]))
		later := fieldBugsLater[row.number]
		switch {
		case len(names) == 0 && later == "":
			t.Errorf("%s has no test that bears its number: %s", row.number, row.symptom)
		case len(names) > 0 && later != "":
			t.Errorf("%s has a test, so it is no longer one of those that come with %s", row.number, later)
		}
		cell := "comes with " + later
		if len(names) > 0 {
			cell = "`" + strings.Join(names, "`<br>`") + "`"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", row.number, escape(row.symptom), escape(row.behaviour), cell)
	}
	for number := range tests {
		if !slices.ContainsFunc(rows, func(r fieldBug) bool { return r.number == number }) {
			t.Errorf("a test bears %s, which is no row", number)
		}
	}
	if *update {
		if err := os.WriteFile(fieldBugsPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(fieldBugsPage); err != nil || !bytes.Equal(got, page.Bytes()) {
		t.Errorf("%s is not what the tests say (%v): run it with -update", fieldBugsPage, err)
	}
}

// escape keeps a cell one cell.
func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// fieldBugs reads the rows of the table.
func fieldBugs(t *testing.T) (rows []fieldBug) {
	t.Helper()
	b, err := os.ReadFile("testdata/field-bugs.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		// | number | where reported | symptom there | right behaviour |
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) < 4 || !strings.HasPrefix(cells[0], "| B") {
			continue
		}
		symptom, behaviour := cells[len(cells)-2], strings.TrimSuffix(cells[len(cells)-1], " |")
		if symptom == "-" {
			symptom = cells[1]
		}
		rows = append(rows, fieldBug{strings.TrimPrefix(cells[0], "| "), symptom, behaviour})
	}
	if len(rows) < 20 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows
}

// vulnerabilities reads the other table.
func vulnerabilities(t *testing.T) (rows []fieldBug) {
	t.Helper()
	f, err := os.Open("testdata/cves.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all[1:] {
		rows = append(rows, fieldBug{r[0], r[1], r[2]})
	}
	return rows
}

var fieldBugNumber = regexp.MustCompile(`(?:\b|_|Test)(B[1-9][0-9]?|CVE-[0-9]+-[0-9]+)(?:\b|_|[A-Z][a-z])`)

// numberedTests finds the tests that bear numbers: package and name, by number.
func numberedTests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "fieldbugs_test.go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !fieldBugNumber.Match(src) {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../")))
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			from := fn.Pos()
			if fn.Doc != nil {
				from = fn.Doc.Pos()
			}
			text := src[fset.Position(from).Offset:fset.Position(fn.End()).Offset]
			for _, m := range fieldBugNumber.FindAllSubmatch(text, -1) {
				number := string(m[1])
				if found[number] == nil {
					found[number] = map[string]bool{}
				}
				found[number][pkg+" "+fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
