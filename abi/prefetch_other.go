//go:build !amd64

package abi

func prefetchWrite(*uint64) {}
