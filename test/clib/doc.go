// Package clib tests the drop-in libibverbs.so.1 (folder dropin) from C and Python: the programs of dropin/test, which know
// the public header alone, compiled with the address and undefined-behaviour sanitizers and run against a daemon; and
// rdma-core's own pyverbs tests, as Debian ships them, each of which passes or has a line in docs/pyverbs.md that says why
// not.
//
// `make clib` runs the programs as they are and under valgrind too, and 100,000 registrations. `go test -short` runs few of
// them: no Go code is on their path but the daemon's.
package clib
