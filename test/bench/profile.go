package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/google/pprof/profile"
)

// What the daemon does most, for the compiler: `go build ./cmd/softnicd` inlines by cmd/softnicd/default.pgo, which make
// profile renews from these runs. None is long enough to outweigh the others.
var profiled = [][]string{
	{"send-bw", device, "--size", "64"},
	{"send-bw", daemons, "--size", "64"},
	{"write-bw", device, "--size", "1048576"},
	{"write-bw", daemons, "--size", "1048576"},
	{"read-bw", daemons, "--size", "1048576"},
	{"send-lat", device, "--size", "2"},
	{"send-lat", daemons, "--size", "2"},
	{"write-bw", daemons, "--size", "4096", "--qps", "64"},
	{"atomic-bw", daemons},
	{"send-bw", daemons, "--size", "1024", "--service", "ud"},
}

// profileDaemons writes one CPU profile of the daemons of all these runs. Of the machine that they ran on nothing is
// left in it.
func (s *suite) profileDaemons(file string) error {
	for i, args := range profiled {
		prefix := filepath.Join(s.dir, fmt.Sprintf("profile%d.", i))
		if _, err := s.perf(append(args[:len(args):len(args)], "--daemon-cpuprofile", prefix)...); err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	names, err := filepath.Glob(filepath.Join(s.dir, "profile*"))
	if err != nil {
		return err
	}
	var all []*profile.Profile
	for _, name := range names {
		p, err := readProfile(name)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	p, err := profile.Merge(all)
	if err != nil {
		return err
	}
	p.TimeNanos, p.DurationNanos = 0, 0
	for _, m := range p.Mapping {
		m.File, m.BuildID = "softnicd", ""
	}
	for _, f := range p.Function {
		f.Filename = path.Base(f.Filename)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := p.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func readProfile(name string) (*profile.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return profile.Parse(f)
}
