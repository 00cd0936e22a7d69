package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/softnic/softnicd/link/fault"
)

func TestFaultPlan(t *testing.T) {
	write := func(text string) *config {
		path := filepath.Join(t.TempDir(), "plan.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return &config{Fault: path}
	}
	got, err := write("seed: 7\nrules:\n- {action: drop, direction: send, probability: 0.01}\n- {action: delay, delay: 5ms, nth: 3}\n").faults()
	want := &fault.Plan{Seed: 7, Rules: []fault.Rule{
		{Action: fault.Drop, Direction: fault.Send, Probability: 0.01},
		{Action: fault.Delay, Delay: fault.Duration(5 * time.Millisecond), Nth: 3},
	}}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
	for _, text := range []string{"rules:\n- {action: explode}\n", "rules:\n- {action: drop, chance: 1}\n", "rules: 3\n"} {
		if _, err := write(text).faults(); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	if plan, err := (&config{}).faults(); plan != nil || err != nil {
		t.Errorf("no file: %v, %v", plan, err)
	}
	if _, err := (&config{Fault: "/nonexistent"}).faults(); err == nil {
		t.Error("a file that is not there: no error")
	}
}
