package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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

// A private daemon has the variables, and says what was asked for where it can be read.
func TestPrivateDaemonSpeaks(t *testing.T) {
	t.Setenv(beSoftnicd, "1")
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	flags := []string{"--socket", socket, "--device", "a=127.0.0.1", "--port", "14799"}
	t.Setenv("SOFTNICD_SHARDS", "1000")
	if _, err := startPrivateOnce(t.Context(), socket, flags, nil); err == nil || !strings.Contains(err.Error(), "1000 shards") {
		t.Errorf("%v", err)
	}
	t.Setenv("SOFTNICD_SHARDS", "1")
	var said bytes.Buffer
	p, err := startPrivateOnce(t.Context(), socket, flags, &said)
	check(t, err)
	check(t, p.stop())
	if !strings.Contains(said.String(), "ready") || !strings.Contains(said.String(), "draining") {
		t.Errorf("it said %q", said.String())
	}
	if !bytes.Equal(p.stderr.last(), said.Bytes()) {
		t.Errorf("kept is %q", p.stderr.last())
	}
}

// Another address is tried where one is in use, and not where a right is wanting.
func TestAddressTaken(t *testing.T) {
	for text, want := range map[string]bool{
		"listen udp 127.0.0.1:4791: bind: address already in use": true,
		"packet socket: operation not permitted":                  false,
	} {
		if addressTaken(&exitError{exitTaken, errors.New(text)}) != want || addressTaken(errors.New(text)) {
			t.Errorf("%s: want %v", text, want)
		}
	}
	_, err := startPrivate(t.Context(), privateOf(t, "--shards", "1000"), t.TempDir())
	if exitCode(err) != exitFailed {
		t.Errorf("%v", err)
	}
}

// privateOf parses flags of exec.
func privateOf(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	t.Setenv(beSoftnicd, "1")
	f := newExec().Flags()
	check(t, f.Parse(args))
	return f
}

// A signal that came before the program runs is not lost: it does not run.
func TestSignalBeforeProgram(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(t.TempDir(), "file")
	err := runProgram(ctx, exec.Command("touch", file))
	if _, there := os.Stat(file); !errors.Is(err, context.Canceled) || !errors.Is(there, fs.ErrNotExist) {
		t.Errorf("%v; the file: %v", err, there)
	}
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
