package main

import (
	"bytes"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-n", "500"}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "500 messages, 5390 bytes, all in order\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
}

func TestRunWithoutDaemon(t *testing.T) {
	t.Setenv("SOFTNICD_SOCKET", t.TempDir()+"/none")
	if err := run([]string{"-device", "softnic0"}, &bytes.Buffer{}); err == nil {
		t.Error("a device of a daemon that is not there")
	}
}
