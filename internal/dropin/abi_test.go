package dropin

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
)

// layouts are the structures and constants that a header declares, of those that are the verbs ABI's.
type layouts struct {
	structs   []*dwarf.StructType // named, complete
	constants map[string]int64
}

// headerLayouts compiles a header and reads its types out of what the compiler wrote for debuggers.
func headerLayouts(t *testing.T, include string, flags ...string) *layouts {
	t.Helper()
	object := filepath.Join(t.TempDir(), "header.o")
	args := append([]string{"-x", "c", "-std=gnu11", "-g", "-fno-eliminate-unused-debug-types", "-c", "-o", object}, flags...)
	cc := exec.Command("cc", append(args, "-")...)
	cc.Stdin = strings.NewReader("#include " + include + "\n")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", include, err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	l := &layouts{constants: make(map[string]int64)}
	for r := data.Reader(); ; {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return l
		}
		l.add(t, data, e)
	}
}

func (l *layouts) add(t *testing.T, data *dwarf.Data, e *dwarf.Entry) {
	name, _ := e.Val(dwarf.AttrName).(string)
	switch e.Tag {
	case dwarf.TagEnumerator:
		if v, ok := e.Val(dwarf.AttrConstValue).(int64); ok && (strings.HasPrefix(name, "IBV_")) {
			l.constants[name] = v
		}
	case dwarf.TagStructType, dwarf.TagUnionType:
		if !strings.HasPrefix(strings.TrimPrefix(name, "_"), "ibv_") && !strings.HasPrefix(name, "verbs_") {
			return
		}
		typ, err := data.Type(e.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if s := typ.(*dwarf.StructType); !s.Incomplete {
			l.structs = append(l.structs, s)
		}
	}
}

// fields calls f for each field of a structure, and for those of the nameless structures in it, by the path that offsetof
// takes.
func fields(s *dwarf.StructType, prefix string, base int64, f func(path string, offset int64, size int64)) {
	for _, m := range s.Field {
		path := prefix + m.Name
		inner, _ := m.Type.(*dwarf.StructType)
		if m.Name != "" {
			f(path, base+m.ByteOffset, m.Type.Size())
			path += "."
		}
		if inner != nil && inner.StructName == "" {
			fields(inner, path, base+m.ByteOffset, f)
		}
	}
}

// assertions writes what must be so when another header declares the same. A later release may have longer structures.
func (l *layouts) assertions(exact bool) string {
	var b bytes.Buffer
	b.WriteString("#include <infiniband/verbs.h>\n#include <stddef.h>\n")
	compare := ">="
	if exact {
		compare = "=="
	}
	for _, s := range l.structs {
		name := s.Kind + " " + s.StructName
		fmt.Fprintf(&b, "_Static_assert(sizeof(%s) %s %d, \"%s\");\n", name, compare, s.ByteSize, name)
		fields(s, "", 0, func(path string, offset, size int64) {
			place := fmt.Sprintf("offsetof(%s, %s)", name, path)
			if s.StructName == "verbs_context" {
				// It grows at its top: what counts is the distance to the context at its end.
				fmt.Fprintf(&b, "_Static_assert(sizeof(%s) - %s == %d, \"%s.%s\");\n", name, place, s.ByteSize-offset, name, path)
			} else {
				fmt.Fprintf(&b, "_Static_assert(%s == %d, \"%s.%s\");\n", place, offset, name, path)
			}
			fmt.Fprintf(&b, "_Static_assert(sizeof(((%s *)0)->%s) %s %d, \"%s.%s\");\n", name, path, compare, size, name, path)
		})
	}
	for name, v := range l.constants {
		fmt.Fprintf(&b, "_Static_assert((long long)%s == %dLL, \"%s\");\n", name, v, name)
	}
	return b.String()
}

// macros are the constants that are no enumerators, by our header's values.
const macros = `
_Static_assert(IBV_DEVICE_RAW_SCATTER_FCS == 1ULL << 34, "");
_Static_assert(IBV_DEVICE_PCI_WRITE_END_PADDING == 1ULL << 36, "");
_Static_assert(IBV_ACCESS_OPTIONAL_FIRST == 1 << 20, "");
_Static_assert(IBV_ACCESS_OPTIONAL_RANGE == 0x3ff00000, "");
_Static_assert(ETHERNET_LL_SIZE == 6, "");
_Static_assert(IB_GRH_FLOWLABEL_MASK == 0xfffff, "");
_Static_assert(IB_ROCE_UDP_ENCAP_VALID_PORT_MIN == 0xc000, "");
_Static_assert(IB_ROCE_UDP_ENCAP_VALID_PORT_MAX == 0xffff, "");
`

// undefined are the calls that Debian's header has macros for.
const undefined = "#undef ibv_query_port\n#undef ibv_reg_mr\n#undef ibv_reg_mr_iova\n#undef ibv_get_device_list\n"

// prototypes are the declarations of calls in our header. Beside others of the same names they have to agree.
func prototypes(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../dropin/verbs_abi.h")
	if err != nil {
		t.Fatal(err)
	}
	_, calls, ok := strings.Cut(string(text), "/* The calls.")
	_, calls, ok2 := strings.Cut(calls, "*/")
	if !ok || !ok2 {
		t.Fatal("verbs_abi.h does not say where its calls begin")
	}
	return strings.Replace(calls, "\n#endif", "", 1)
}

func compileC(t *testing.T, source string, flags ...string) error {
	t.Helper()
	cc := exec.Command("cc", append(append([]string{"-x", "c", "-std=gnu11", "-fsyntax-only"}, flags...), "-")...)
	cc.Stdin = strings.NewReader(source)
	out, err := cc.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// A program that was compiled with <infiniband/verbs.h> finds every structure of our header as it left it: sizes, offsets
// and values are asserted while Debian's header is compiled.
func TestHeaderIsDebians(t *testing.T) {
	progtest.Need(t, "cc")
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		progtest.Missing(t, "libibverbs-dev")
	}
	ours := headerLayouts(t, `"verbs_abi.h"`, "-I../../dropin")
	if len(ours.structs) < 100 || len(ours.constants) < 400 {
		t.Fatalf("our header has %d structures and %d constants", len(ours.structs), len(ours.constants))
	}
	theirs := headerLayouts(t, "<infiniband/verbs.h>")
	sizes := make(map[string]*dwarf.StructType)
	for _, s := range ours.structs {
		sizes[s.StructName] = s
	}
	exact := false
	for _, s := range theirs.structs {
		if s.StructName == "verbs_context" {
			exact = s.ByteSize == sizes["verbs_context"].ByteSize // the release that our header is of
		}
	}
	if err := compileC(t, ours.assertions(exact)+macros); err != nil {
		t.Errorf("our header differs from Debian's: %v", err)
	}
	if err := compileC(t, "#include \"verbs_abi.h\"\n"+macros, "-I../../dropin"); err != nil {
		t.Error(err)
	}
	if err := compileC(t, "#include <infiniband/verbs.h>\n"+undefined+prototypes(t)); err != nil {
		t.Errorf("our header declares a call otherwise than Debian's: %v", err)
	}
	// A test of assertions that cannot fail would be none.
	ours.structs[0].ByteSize++
	if err := compileC(t, ours.assertions(true)); exact && err == nil {
		t.Error("a structure of another size went unnoticed")
	}
	if !exact {
		t.Logf("libibverbs-dev is of another release than 44.0: structures may be longer in it")
		return
	}
	for _, s := range theirs.structs {
		o := sizes[s.StructName]
		if o == nil {
			t.Errorf("our header has no struct %s", s.StructName)
			continue
		}
		if len(o.Field) != len(s.Field) {
			t.Errorf("struct %s has %d fields, Debian's %d", s.StructName, len(o.Field), len(s.Field))
		}
	}
	for name := range theirs.constants {
		if _, ok := ours.constants[name]; !ok {
			t.Errorf("our header has no %s", name)
		}
	}
}
