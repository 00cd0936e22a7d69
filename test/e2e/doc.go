// Package e2e tests the built program: real processes, real sockets on loopback, real signals.
//
// TestMain builds cmd/softnicd once, without cgo. A test takes a UDP port and a control socket of its own, starts what
// it needs and ends it by its own handle; every wait has a deadline. Applications that are to die are this very test
// binary, run again in a role: see roles_test.go. A test that needs a tool or a privilege which is not there skips and
// says so, unless CI=true, where tools have to be installed.
//
//	go test ./test/e2e -run TestDemo -v
//	go test ./test/e2e -short          # without what takes more than a second or two
package e2e
