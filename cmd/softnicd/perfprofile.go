package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// profileCPU begins a CPU profile of this process in a file; with an empty name there is none. The function it returns
// ends it.
func profileCPU(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
