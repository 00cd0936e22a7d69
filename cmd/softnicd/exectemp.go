package main

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tempPrefix begins the names of the folders of exec.
const tempPrefix = "softnicd-exec-"

// tempDir is a folder for the time of one exec. It is locked meanwhile: one that is not was left behind by an exec that was
// killed, and goes with the next.
type tempDir struct {
	path string
	lock *os.File
}

// newTempDir makes a folder, and sweeps those that nobody has any more.
func newTempDir() (*tempDir, error) {
	sweep(os.TempDir())
	for {
		path, err := os.MkdirTemp("", tempPrefix)
		if err != nil {
			return nil, err
		}
		switch lock, err := lockDir(path); {
		case err == nil:
			return &tempDir{path, lock}, nil
		case !errors.Is(err, errNotOurs):
			_ = os.Remove(path)
			return nil, err
		}
		// Another exec took it for one that was left behind, in the moment before it was locked.
	}
}

func (d *tempDir) remove() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}

// errNotOurs says that a folder is locked, or has been removed.
var errNotOurs = errors.New("another process has the folder")

// lockDir locks a folder, for as long as the file is open.
func lockDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNotOurs
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	var stat unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &stat)
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK), err == nil && stat.Nlink == 0:
		err = errNotOurs
	case err == nil:
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

// sweep removes the folders of exec whose owner is gone. What cannot be removed is somebody else's.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	for _, path := range left {
		if lock, err := lockDir(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}
