package dropin

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/softnic/softnicd"
)

// Names of the libraries that a build has.
const (
	libibverbs = "libibverbs.so.1"
	// libsysfs is preloaded for programs that read /sys/class/infiniband.
	libsysfs = "libsoftnicd-sysfs.so"
)

// sysfsSource is the one source that is a library of its own.
const sysfsSource = "dropin/sysfs/redirect.c"

// flags are those of every library. Symbols are exported one by one; a symbol that is missing is found now and not when a
// program calls it.
var flags = []string{"-std=gnu11", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-pthread", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--build-id=sha1"}

// library is one thing to compile.
type library struct {
	soname  string
	sources []string // paths in the folder of the build
	script  string   // version script, or none
	libs    []string
}

// plan is what a build makes: the files that it needs, by path, and the libraries.
type plan struct {
	files     map[string][]byte
	libraries []library
}

// newPlan gathers the sources that the binary carries, and writes those of the stubs.
func newPlan() (*plan, error) {
	p := &plan{files: make(map[string][]byte)}
	err := fs.WalkDir(softnicd.Sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p.files[name], err = softnicd.Sources.ReadFile(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	verbs := library{soname: libibverbs, script: "dropin/libibverbs.map", libs: []string{"-lpthread"}}
	for name := range p.files {
		if strings.HasSuffix(name, ".c") && name != sysfsSource {
			verbs.sources = append(verbs.sources, name)
		}
	}
	slices.Sort(verbs.sources)
	p.libraries = append(p.libraries, verbs,
		library{soname: libsysfs, sources: []string{sysfsSource}, libs: []string{"-ldl"}})
	return p, p.addStubs()
}

// addStubs adds a library for each that stubs.tsv names.
func (p *plan) addStubs() error {
	stubs, err := parseStubs(p.files["dropin/stubs.tsv"])
	if err != nil {
		return err
	}
	of := make(map[string][]stub)
	var names []string
	for _, s := range stubs {
		if of[s.library] == nil {
			names = append(names, s.library)
		}
		of[s.library] = append(of[s.library], s)
	}
	for _, name := range names {
		base, _, _ := strings.Cut(name, ".")
		l := library{soname: name, sources: []string{"stubs/" + base + ".c"}, script: "stubs/" + base + ".map"}
		if p.files[l.sources[0]], err = stubSource(of[name]); err != nil {
			return err
		}
		if p.files[l.script], err = stubMap(of[name]); err != nil {
			return err
		}
		p.libraries = append(p.libraries, l)
	}
	return nil
}

// write puts the files into a folder.
func (p *plan) write(dir string) error {
	for name, text := range p.files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// compile makes the libraries in dir out of the files in src.
func (p *plan) compile(ctx context.Context, cc *compiler, src, dir string) error {
	for _, l := range p.libraries {
		args := slices.Concat(flags, []string{"-Idropin", "-Iinclude", "-Wl,-soname," + l.soname, "-o", filepath.Join(dir, l.soname)})
		if l.script != "" {
			args = append(args, "-Wl,--version-script="+l.script)
		}
		args = append(append(args, l.sources...), l.libs...)
		if _, err := cc.run(ctx, src, args...); err != nil {
			return fmt.Errorf("compiling %s: %w", l.soname, err)
		}
	}
	return nil
}

// digestInput is everything that decides what a build gives, in order.
func (p *plan) digestInput(cc *compiler) []byte {
	var b bytes.Buffer
	names := make([]string, 0, len(p.files))
	for name := range p.files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s %d\n%s\n", name, len(p.files[name]), p.files[name])
	}
	fmt.Fprintf(&b, "%q\n%q\n%s", flags, cc.command, cc.version)
	return b.Bytes()
}

// Build compiles the libraries into dir, which is made if it is not there. Each library appears whole or not at all.
func Build(ctx context.Context, dir string) (*Libraries, error) {
	p, err := newPlan()
	if err != nil {
		return nil, err
	}
	cc, err := findCompiler(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	// Beside what they replace, so that they can be renamed.
	made, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(made)
	if err := p.build(ctx, cc, made); err != nil {
		return nil, err
	}
	for _, l := range p.libraries {
		if err := os.Rename(filepath.Join(made, l.soname), filepath.Join(dir, l.soname)); err != nil {
			return nil, err
		}
	}
	return &Libraries{dir}, nil
}

// build compiles the libraries into dir.
func (p *plan) build(ctx context.Context, cc *compiler, dir string) error {
	src, err := os.MkdirTemp("", "softnicd-libs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	if err := p.write(src); err != nil {
		return err
	}
	return p.compile(ctx, cc, src, dir)
}
