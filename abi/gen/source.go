package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
)

// A source is the declarations of one package that have a C form.
type source struct {
	files   []*ast.File
	info    *types.Info
	imports map[string]*types.Package
}

// load reads the package in dir. Only what its declarations need is type-checked: function bodies are left out, and
// packages other than those in known are stand-ins. A declaration that needs more than that is an error where it is used.
func load(dir, path string, known map[string]*types.Package) (*source, *types.Package, error) {
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	s := &source{
		info:    &types.Info{Defs: map[*ast.Ident]types.Object{}},
		imports: known,
	}
	for _, name := range names { // in the order of their names
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasSuffix(name, "_test.go") || !builds(string(text)) {
			continue
		}
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		s.files = append(s.files, f)
	}
	if len(s.files) == 0 {
		return nil, nil, fmt.Errorf("no Go files in %s", dir)
	}
	c := types.Config{
		IgnoreFuncBodies: true,
		Importer:         s,
		Sizes:            sizes,
		Error:            func(error) {}, // of stand-ins
	}
	pkg, _ := c.Check(path, fset, s.files, s.info)
	return s, pkg, nil
}

// sizes are those of C on the machines that words_unsafe.go names.
var sizes = types.SizesFor("gc", "amd64")

// builds reports whether a file belongs to an ordinary build: not to one with the race detector, say.
func builds(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	if !constraint.IsGoBuild(line) {
		return true
	}
	x, err := constraint.Parse(line)
	return err == nil && x.Eval(func(tag string) bool { return tag == "amd64" || tag == "linux" })
}

// Import returns the package that was loaded before, or a stand-in.
func (s *source) Import(path string) (*types.Package, error) {
	if p := s.imports[path]; p != nil {
		return p, nil
	}
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// A constGroup is a declaration of constants, with its comment.
type constGroup struct {
	doc    string
	consts []constDecl
}

type constDecl struct {
	name  string
	note  string
	value uint64
}

// constants returns the package's integer constants in the order of the source. Unexported ones count when their name
// begins with off: they are offsets.
func (s *source) constants() ([]constGroup, error) {
	var groups []constGroup
	for _, f := range s.files {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			g := constGroup{doc: decl.Doc.Text()}
			for _, spec := range decl.Specs {
				v := spec.(*ast.ValueSpec)
				for _, id := range v.Names {
					if !id.IsExported() && !strings.HasPrefix(id.Name, "off") {
						continue
					}
					c, ok := s.info.Defs[id].(*types.Const)
					if !ok || c.Val().Kind() != constant.Int {
						return nil, fmt.Errorf("constant %s has no integer value that this generator understands", id.Name)
					}
					n, exact := constant.Uint64Val(c.Val())
					if !exact {
						return nil, fmt.Errorf("constant %s is no 64-bit unsigned value", id.Name)
					}
					g.consts = append(g.consts, constDecl{id.Name, oneLine(v.Comment.Text()), n})
				}
			}
			if len(g.consts) > 0 {
				groups = append(groups, g)
			}
		}
	}
	return groups, nil
}

// A structDecl is a struct with its layout.
type structDecl struct {
	name   string
	doc    string
	size   int64
	fields []fieldDecl
}

type fieldDecl struct {
	name   string
	note   string
	ctype  string
	array  string // [n]... after the name
	offset int64
	size   int64
}

// structs returns the package's exported structs in the order of the source: all whose fields are exported and have a C
// form. One with exported fields that have none is left out too (an error value, say), unless it is wanted.
func (s *source) structs(wanted func(name string) bool) ([]structDecl, error) {
	var all []structDecl
	for _, f := range s.files {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, spec := range decl.Specs {
				ts := spec.(*ast.TypeSpec)
				syntax, ok := ts.Type.(*ast.StructType)
				if !ok || !wanted(ts.Name.Name) {
					continue
				}
				sd, err := s.layout(ts.Name, syntax)
				if err != nil {
					return nil, err
				}
				if len(sd.fields) == 0 {
					continue // C has no empty struct
				}
				sd.doc = oneLine(decl.Doc.Text())
				all = append(all, sd)
			}
		}
	}
	return all, nil
}

func (s *source) layout(name *ast.Ident, syntax *ast.StructType) (structDecl, error) {
	st, ok := s.info.Defs[name].Type().Underlying().(*types.Struct)
	if !ok {
		return structDecl{}, fmt.Errorf("%s is no struct", name.Name)
	}
	var vars []*types.Var
	for i := range st.NumFields() {
		vars = append(vars, st.Field(i))
	}
	offsets := sizes.Offsetsof(vars)
	notes := map[string]string{}
	for _, f := range syntax.Fields.List {
		for _, id := range f.Names {
			notes[id.Name] = oneLine(f.Comment.Text())
		}
	}
	sd := structDecl{name: name.Name, size: sizes.Sizeof(st)}
	for i, v := range vars {
		ctype, array, err := cType(v.Type())
		if err != nil {
			return sd, fmt.Errorf("%s.%s: %w", name.Name, v.Name(), err)
		}
		sd.fields = append(sd.fields, fieldDecl{v.Name(), notes[v.Name()], ctype, array, offsets[i], sizes.Sizeof(v.Type())})
	}
	return sd, nil
}

var errNoC = errors.New("type has no C form")

func cType(t types.Type) (name, array string, err error) {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch u.Kind() {
		case types.Uint8:
			return "uint8_t", "", nil
		case types.Uint16:
			return "uint16_t", "", nil
		case types.Uint32:
			return "uint32_t", "", nil
		case types.Uint64:
			return "uint64_t", "", nil
		}
	case *types.Array:
		name, inner, err := cType(u.Elem())
		return name, fmt.Sprintf("[%d]%s", u.Len(), inner), err
	case *types.Struct:
		if n, ok := t.(*types.Named); ok {
			return "struct " + cName(prefixOf(n.Obj().Pkg()), n.Obj().Name()), "", nil
		}
	}
	return "", "", fmt.Errorf("%v: %w", t, errNoC)
}

// oneLine returns a comment's first sentence, on one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if i := strings.Index(text, ". "); i >= 0 {
		text = text[:i+1]
	}
	return strings.ReplaceAll(text, "*/", "* /")
}
