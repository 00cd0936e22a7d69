package main

import (
	"bytes"
	"fmt"
	"testing"
)

// The handler runs for batches, not for messages: once each, or once more where a batch came while it looked again.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-n", "20"}, &out); err != nil {
		t.Fatal(err)
	}
	var messages, calls int
	if _, err := fmt.Sscanf(out.String(), "%d messages, %d calls of the handler\n", &messages, &calls); err != nil {
		t.Fatalf("it says %q: %v", out.String(), err)
	}
	if messages != 20*perBatch || calls < 1 || calls > 40 {
		t.Errorf("%d messages, %d calls", messages, calls)
	}
}
