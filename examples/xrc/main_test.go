package main

import (
	"bytes"
	"strings"
	"testing"
)

// Every client reaches every worker over one connection each way.
func TestRun(t *testing.T) {
	for args, want := range map[string]string{
		"-workers 4 -clients 8": "32 answers for 8 clients of 4 workers\nqueue pairs: 32 with XRC, 64 with RC: 32 saved\n",
		"-workers 8 -clients 3": "24 answers for 3 clients of 8 workers\nqueue pairs: 12 with XRC, 48 with RC: 36 saved\n",
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(args), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s says\n%swant\n%s", args, out.String(), want)
		}
	}
	if err := run([]string{"-clients", "0"}, new(bytes.Buffer)); err == nil {
		t.Error("no clients, no error")
	}
}
