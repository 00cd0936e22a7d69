package dropin

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
)

// builtDir is where built compiles; empty while no test has asked for it.
var builtDir string

// built compiles the libraries once for all tests.
var built = sync.OnceValues(func() (l *Libraries, err error) {
	if builtDir, err = os.MkdirTemp("", "softnicd-test-libs-"); err != nil {
		return nil, err
	}
	return Build(context.Background(), builtDir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

func libraries(t *testing.T) *Libraries {
	t.Helper()
	if _, err := findCompiler(t.Context()); err != nil {
		progtest.Missing(t, "cc")
	}
	l, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// export is a symbol in a version node.
type export struct{ symbol, node string }

// exports returns what a library defines for others. hidden tells those that only old programs find.
func exports(t *testing.T, path string) (found map[export]bool, soname string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	found = make(map[export]bool)
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS && s.Name != s.Version {
			found[export{s.Name, s.Version}] = s.VersionIndex.IsHidden()
		}
	}
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: soname %v, %v", path, names, err)
	}
	return found, names[0]
}

// row is one of ibv-symbols.tsv: a symbol that programs of Debian import, or that a vendor's library exports for them.
type row struct{ symbol, version, library, consumers string }

func symbolRows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("testdata/ibv-symbols.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 5 {
			t.Fatalf("line %d: %q", i+1, line)
		}
		if i > 0 && f[0] != "symbol" {
			rows = append(rows, row{f[0], f[1], f[2], f[4]})
		}
	}
	return rows
}

// ofProviders are the rows that only rdma-core's own provider libraries import: they serve its kernel interface, and none
// of them is loaded with ours.
func (r row) ofProviders() bool {
	return strings.HasPrefix(r.version, "IBVERBS_PRIVATE_") && r.consumers == "providers"
}

// Every symbol that a program may import is there, in the node in which it is looked for.
func TestSymbols(t *testing.T) {
	l := libraries(t)
	found := make(map[string]map[export]bool)
	for _, r := range symbolRows(t) {
		if r.ofProviders() {
			continue
		}
		if found[r.library] == nil {
			var soname string
			found[r.library], soname = exports(t, filepath.Join(l.Dir, r.library))
			if soname != r.library {
				t.Errorf("%s calls itself %s", r.library, soname)
			}
		}
		if hidden, ok := found[r.library][export{r.symbol, r.version}]; !ok {
			t.Errorf("%s: no %s@%s, which %s imports", r.library, r.symbol, r.version, r.consumers)
		} else if hidden {
			t.Errorf("%s: %s@%s is not what new programs find", r.library, r.symbol, r.version)
		}
	}
	if len(found) != 5 {
		t.Errorf("the table speaks of %d libraries, want 5", len(found))
	}
	for _, node := range []string{"22", "25", "33", "34", "57", "59", "64", "65"} {
		if _, ok := found[libibverbs][export{"ibv_query_gid_type", "IBVERBS_PRIVATE_" + node}]; !ok {
			t.Errorf("ibv_query_gid_type is not in IBVERBS_PRIVATE_%s", node)
		}
	}
}

// The library has what Debian's has, and nothing that a program could take for something else.
func TestSymbolsAreDebians(t *testing.T) {
	ours, _ := exports(t, filepath.Join(libraries(t).Dir, libibverbs))
	debians, err := filepath.Glob("/usr/lib/*/" + libibverbs)
	if err != nil || len(debians) == 0 {
		progtest.Missing(t, "Debian's "+libibverbs)
	}
	theirs, _ := exports(t, debians[0])
	for e, hidden := range theirs {
		if _, ok := ours[e]; !ok && !hidden && !strings.HasPrefix(e.node, "IBVERBS_PRIVATE_") {
			t.Errorf("no %s@%s", e.symbol, e.node)
		}
	}
	for e := range ours {
		if strings.HasPrefix(e.symbol, "sn_query_gid_type_") {
			continue // what versions.c makes nodes of
		}
		if !strings.HasPrefix(strings.TrimPrefix(e.symbol, "_"), "ibv_") && !slices.Contains([]string{"mult_to_ibv_rate", "mbps_to_ibv_rate"}, e.symbol) {
			t.Errorf("%s@%s is exported", e.symbol, e.node)
		}
	}
}
