package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the environment tells a daemon does not leak into those of demo and perf.
func TestWithoutVariables(t *testing.T) {
	got := withoutVariables([]string{"PATH=/bin", "SOFTNICD_SHARDS=4", "SOFTNICD_FAULT=f", "SOFTNICD_LOG_LEVEL=debug", "SOFTNICD_LIBS=l", "SOFTNICD_SOCKET=s"})
	if want := []string{"PATH=/bin", "SOFTNICD_LIBS=l"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	t.Setenv(beSoftnicd, "1")
	t.Setenv("SOFTNICD_SHARDS", "1000")
	p, err := startRun(t.Context(), filepath.Join(t.TempDir(), "s"), "--device", "a=127.0.0.1", "--port", "14799")
	check(t, err)
	check(t, p.stop())
}

func TestTail(t *testing.T) {
	var all tail
	line := []byte(strings.Repeat("x", 999) + "\n")
	for range 1000 {
		_, _ = all.Write(line)
	}
	_, _ = all.Write([]byte("end"))
	if got := all.last(); len(got) < tailBytes || len(got) > 2*tailBytes || !bytes.HasSuffix(got, []byte("x\nend")) {
		t.Errorf("%d bytes are kept", len(got))
	}
}
