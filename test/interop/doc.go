// Package interop runs programs that others wrote, as Debian ships them, under `softnicd exec`: rdma-core's own, perftest,
// qperf and UCX. Each of them meets itself through one daemon and through two. A program that is not on the machine is
// skipped by its name; in CI it has to be there (scripts/test-deps).
//
// `go test` runs some of each kind, `make interop` all of them.
package interop
