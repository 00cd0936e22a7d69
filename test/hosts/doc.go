// Package hosts runs one daemon on each of several hosts: network namespaces of the test's own that a bridge joins. Every
// service is carried between all of them, over IPv4 and IPv6, and goes on or fails as it should when a link flaps, an
// address goes away or the MTU changes in the middle of it.
//
//	go test ./test/hosts -run TestServices/RC
//
// Namespaces need root. Who is not root gets a user namespace, as of unshare -Urn; where that is forbidden the tests are
// skipped.
package hosts
