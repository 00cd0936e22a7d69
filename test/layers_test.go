// Package test holds what is about the whole project: the order of its layers, and in its folders the simulator, packet
// scripts and runs with real processes.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/softnic/softnicd/"

// layers is the map of ARCHITECTURE.md: what each package may import of softnicd. What stands below a folder and is not
// listed for itself may import what the folder may. Tests may import more: they look from outside.
var layers = map[string][]string{
	".":                             {}, // the C sources that the binary carries
	"ib":                            {},
	"clock":                         {},
	"internal/crc":                  {},
	"internal/explore":              {},
	"internal/nettest":              {},
	"internal/progtest":             {},
	"internal/shm":                  {},
	"internal/yield":                {},
	"internal/dropin":               {},
	"trace":                         {"ib", "clock"},
	"wire":                          {"ib", "internal/crc"},
	"abi":                           {"ib"},
	"abi/ctl":                       {"ib", "abi"},
	"abi/gen":                       {"ib", "abi", "abi/ctl"},
	"dma":                           {"ib", "wire", "internal/shm"},
	"cq":                            {"ib", "clock", "abi"},
	"transport":                     {"ib", "clock", "trace", "wire", "dma"},
	"transport/rc":                  {"ib", "clock", "trace", "wire", "dma", "transport"},
	"transport/internal/unreliable": {"ib", "clock", "wire", "dma", "transport"},
	"transport/uc":                  {"ib", "clock", "wire", "dma", "transport", "transport/internal/unreliable"},
	"transport/ud":                  {"ib", "clock", "wire", "dma", "transport", "transport/internal/unreliable"},
	"nic":                           {"ib", "clock", "trace", "wire", "abi", "dma", "cq", "transport", "transport/rc", "transport/uc", "transport/ud", "internal/yield"},
	"link/internal/batch":           {"ib", "clock", "wire", "dma", "nic"},
	"link/udp":                      {"ib", "clock", "wire", "dma", "nic", "link/internal/batch"},
	"link/raw":                      {"ib", "clock", "wire", "dma", "nic", "link/internal/batch"},
	"link/local":                    {"ib", "clock", "wire", "dma", "nic"},
	"link/fault":                    {"ib", "clock", "wire", "dma", "nic"},
	"link/capture":                  {"ib", "clock", "trace", "wire", "nic"},
	"link/netdev":                   {"ib", "nic"},
	"control":                       {"ib", "clock", "abi", "abi/ctl", "cq", "dma", "nic", "internal/shm"},
	"verbs":                         {"ib", "abi", "abi/ctl", "cq", "internal/shm", "internal/yield", "verbs/internal/arena"},
	"verbs/embedded":                {"ib", "clock", "trace", "wire", "abi", "abi/ctl", "internal/shm", "nic", "link/local", "link/fault", "control", "verbs"},
	"cmd/softnicd":                  nil, // assembly: anything
	"test":                          nil,
	"examples":                      nil,
}

func TestLayers(t *testing.T) {
	for name := range layers {
		if _, err := os.Stat(filepath.Join("..", name)); err != nil {
			t.Errorf("layers has %s: %v", name, err)
		}
	}
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../")))
		allowed, known := lookUp(pkg)
		if !known {
			t.Errorf("%s: package is not on the map: add it to layers and to ARCHITECTURE.md", pkg)
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if name == "unsafe" && !strings.HasSuffix(path, "_unsafe.go") {
				t.Errorf("%s imports unsafe: it belongs in a file that says so, *_unsafe.go", path)
			}
			inner, ours := strings.CutPrefix(name, module)
			if !ours || allowed == nil || slices.Contains(allowed, inner) {
				continue
			}
			t.Errorf("%s imports %s, which does not stand before %s", path, inner, pkg)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// lookUp finds the package or the nearest folder above it that the map names.
func lookUp(pkg string) (allowed []string, known bool) {
	if pkg == "." {
		return layers["."], true
	}
	for p := pkg; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
		if allowed, known = layers[p]; known {
			return allowed, true
		}
	}
	return nil, false
}
