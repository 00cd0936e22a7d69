package dropin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Libraries are compiled libraries: a folder for LD_LIBRARY_PATH.
type Libraries struct {
	Dir string
}

// Variables that the libraries and whoever looks for them read.
const (
	EnvLibs   = "SOFTNICD_LIBS"   // a folder with libraries that `softnicd libs` made
	EnvSocket = "SOFTNICD_SOCKET" // the daemon's control socket
	EnvLIDs   = "SOFTNICD_LIDS"   // set: ports have LIDs, for programs that know no GIDs
	EnvSysfs  = "SOFTNICD_SYSFS"  // what stands for /sys in a program that looks for RDMA devices there
)

// Find returns the libraries: those that $SOFTNICD_LIBS names, or that were installed beside the program, or that were
// compiled before; or compiles them now, into the user's cache.
func Find(ctx context.Context) (*Libraries, error) {
	if dir := os.Getenv(EnvLibs); dir != "" {
		l := &Libraries{dir}
		if !l.complete() {
			return nil, fmt.Errorf("%s: %s has no %s; make it with softnicd libs --dir", EnvLibs, dir, libibverbs)
		}
		return l.absolute()
	}
	if self, err := os.Executable(); err == nil {
		if l := (&Libraries{filepath.Join(filepath.Dir(filepath.Dir(self)), "lib", "softnicd")}); l.complete() {
			return l, nil
		}
	}
	return cached(ctx)
}

func (l *Libraries) complete() bool {
	_, err := os.Stat(filepath.Join(l.Dir, libibverbs))
	return err == nil
}

func (l *Libraries) absolute() (*Libraries, error) {
	dir, err := filepath.Abs(l.Dir)
	return &Libraries{dir}, err
}

// cached returns the libraries of the cache. Several processes that find none compile each for itself, and the first that
// is ready names its own; a folder of the cache is complete or it is not there.
func cached(ctx context.Context) (*Libraries, error) {
	p, err := newPlan()
	if err != nil {
		return nil, err
	}
	cc, err := findCompiler(ctx)
	if err != nil {
		return nil, err
	}
	parent, err := cacheDir()
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(p.digestInput(cc))
	l := &Libraries{filepath.Join(parent, "libs-"+hex.EncodeToString(digest[:10]))}
	if l.complete() {
		return l, nil
	}
	made, err := os.MkdirTemp(parent, ".libs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(made)
	if err := p.build(ctx, cc, made); err != nil {
		return nil, err
	}
	if err := os.Rename(made, l.Dir); err != nil && !l.complete() {
		return nil, err
	}
	return l, nil
}

// cacheDir is softnicd's folder in the user's cache. Who has no home has one in the folder for temporary files, where it
// must be his: what is in it is loaded into his programs.
func cacheDir() (string, error) {
	parent, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(parent, "softnicd")
		if err = os.MkdirAll(dir, 0o700); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("softnicd-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || stat.Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder of this user alone; remove it, or set XDG_CACHE_HOME", dir)
	}
	return dir, nil
}

// Variables are what a program needs to load the libraries, beside what it has: LD_LIBRARY_PATH for itself and what it
// links, LD_PRELOAD because a program's own run path comes before LD_LIBRARY_PATH.
func (l *Libraries) Variables(environ []string, sysfs bool) map[string]string {
	preload := []string{filepath.Join(l.Dir, libibverbs)}
	if sysfs {
		preload = append(preload, filepath.Join(l.Dir, libsysfs))
	}
	old := func(name string) string {
		for _, v := range slices.Backward(environ) {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	return map[string]string{
		"LD_LIBRARY_PATH": join([]string{l.Dir}, folders(old("LD_LIBRARY_PATH"))),
		"LD_PRELOAD":      join(preload, strings.FieldsFunc(old("LD_PRELOAD"), func(r rune) bool { return r == ':' || r == ' ' })),
	}
}

// folders are those of an LD_LIBRARY_PATH, as ld.so reads it: one of no name is the working directory, but a path of no
// length is none.
func folders(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(path, ";", ":"), ":")
}

// join puts ours before theirs, once.
func join(ours, theirs []string) string {
	for _, word := range theirs {
		if !slices.Contains(ours, word) {
			ours = append(ours, word)
		}
	}
	return strings.Join(ours, ":")
}

// Environ is environ with other values for some variables.
func Environ(environ []string, values map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, ours := values[name]
		return ours
	})
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, name+"="+values[name])
	}
	return out
}

// withoutOurs is environ without what makes programs load libraries of ours.
func withoutOurs(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "LD_PRELOAD=") && strings.Contains(v, libibverbs)
	})
}
