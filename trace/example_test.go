package trace_test

import (
	"fmt"

	"github.com/softnic/softnicd/trace"
)

func ExampleLadder() {
	steps := []trace.Step{
		{Time: 0, From: "A", To: "B", Label: "RC_SEND_ONLY", PSN: 0x100, Bytes: 5},
		{Time: 21000, From: "B", To: "A", Label: "RC_ACKNOWLEDGE", PSN: 0x100, Meaning: "ACK"},
	}
	fmt.Print(trace.Ladder{Width: 60}.Draw(steps))
	// Output:
	//           A                                                B
	// 0.000 ms  │── RC_SEND_ONLY psn 0x000100 5 B ──────────────▶│
	// 0.021 ms  │◀─ RC_ACKNOWLEDGE psn 0x000100 ACK ─────────────│
}
