package dropin

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// stub is a function that is there only so that programs load.
type stub struct {
	symbol  string
	version string // the node: NAME_MAJOR.MINOR
	library string
	answers string // errno, minus, pointer, text, void or zero
}

// parseStubs reads dropin/stubs.tsv.
func parseStubs(text []byte) ([]stub, error) {
	var stubs []stub
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		if n == 1 {
			continue // the head
		}
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("stubs.tsv: line %d has %d columns, want 4", n, len(f))
		}
		stubs = append(stubs, stub{f[0], f[1], f[2], f[3]})
	}
	return stubs, lines.Err()
}

// A stub refuses in the way of its library: those of vendors return an errno, those of librdmacm -1 and errno.
var stubBodies = map[string]string{
	"errno":   "int %s(void) { return EOPNOTSUPP; }",
	"minus":   "int %s(void) { errno = ENOSYS; return -1; }",
	"pointer": "void *%s(void) { errno = REFUSAL; return 0; }",
	"text":    "const char *%s(void) { return \"not offered by softnicd\"; }",
	"void":    "void %s(void) { }",
	"zero":    "int %s(void) { return 0; }",
}

// stubSource writes the C source of a library of stubs. A stub takes its arguments, whatever they are, and looks at none.
func stubSource(stubs []stub) ([]byte, error) {
	refusal := "EOPNOTSUPP"
	var b bytes.Buffer
	for _, s := range stubs {
		if s.answers == "minus" {
			refusal = "ENOSYS"
		}
	}
	fmt.Fprintf(&b, "#include <errno.h>\n#define REFUSAL %s\n#pragma GCC visibility push(default)\n", refusal)
	for _, s := range stubs {
		body, ok := stubBodies[s.answers]
		if !ok {
			return nil, fmt.Errorf("stubs.tsv: %s answers %q", s.symbol, s.answers)
		}
		fmt.Fprintf(&b, body+"\n", s.symbol)
	}
	return b.Bytes(), nil
}

// stubMap writes the version script of a library of stubs: the nodes in order, each upon the one before.
func stubMap(stubs []stub) ([]byte, error) {
	nodes := make(map[string][]string)
	for _, s := range stubs {
		nodes[s.version] = append(nodes[s.version], s.symbol)
	}
	order := make([]string, 0, len(nodes))
	for v := range nodes {
		if _, err := nodeNumber(v); err != nil {
			return nil, err
		}
		order = append(order, v)
	}
	slices.SortFunc(order, func(a, b string) int {
		x, _ := nodeNumber(a)
		y, _ := nodeNumber(b)
		return cmp.Compare(x, y)
	})
	var b bytes.Buffer
	for i, v := range order {
		fmt.Fprintf(&b, "%s { global: %s;", v, strings.Join(nodes[v], "; "))
		if i == 0 {
			b.WriteString(" local: *; };\n")
		} else {
			fmt.Fprintf(&b, " } %s;\n", order[i-1])
		}
	}
	return b.Bytes(), nil
}

// nodeNumber orders version nodes: that of MLX5_1.10 is above that of MLX5_1.9.
func nodeNumber(node string) (int, error) {
	_, number, _ := strings.Cut(node, "_")
	major, minor, _ := strings.Cut(number, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("stubs.tsv: version %q, want NAME_MAJOR.MINOR", node)
	}
	return a<<16 | b, nil
}
