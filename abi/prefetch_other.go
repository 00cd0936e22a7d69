//go:build !amd64

package abi

func prefetch(*uint64)      {}
func prefetchWrite(*uint64) {}
