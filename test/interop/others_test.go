package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Without rdma_cm qperf addresses its peer by a LID, and an address without a GRH is refused by every RoCE device: it says
// why and ends.
func TestQperf(t *testing.T) {
	for _, test := range []string{"rc_bw", "uc_lat", "ud_bw"} {
		t.Run(test, func(t *testing.T) {
			lookFor(t, "qperf")
			d, err := daemons()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			port := freePort(t)
			server := start(t, d[0].socket, "qperf", "--listen_port", fmt.Sprint(port))
			if err := server.listens(ctx, port); err != nil {
				t.Fatal(err)
			}
			client := start(t, d[0].socket, "qperf", "--listen_port", fmt.Sprint(port), "--time", "1", "localhost", test)
			if err := client.wait(ctx); err == nil {
				t.Fatal("it ran; let it run all of its tests")
			}
			const refusal = "without GRH, which Ethernet needs"
			if !strings.Contains(client.out.String(), refusal) {
				until(t, server, refusal)
			}
		})
	}
}

// UCX chooses its transports by itself, unless it is told: rc_verbs and ud_verbs are those of libibverbs.
// With ud_verbs it takes the SL of a completion for the kind of a packet, as ConnectX has it.
func TestUCX(t *testing.T) {
	var pairs []pair
	add := func(transport, test string, more ...string) {
		args := append([]string{"ucx_perftest", "-p", "PORT", "-d", "softnic0:1", "-x", transport, "-n", "1000", "-w", "100", "-t", test}, more...)
		p := same(strings.Join(append([]string{transport, test}, more...), " "), args)
		p.client = append([]string{args[0], "localhost"}, args[1:]...)
		p.want = []string{"Final:"}
		p.short = test == "am_lat"
		p.sysfs = true // where it looks for the kind of its GIDs
		pairs = append(pairs, p)
	}
	for _, transport := range []string{"rc_verbs", "ud_verbs"} {
		add(transport, "am_lat", "-D", "short")
		add(transport, "am_bw", "-D", "bcopy", "-s", "1024")
		add(transport, "am_bw", "-D", "zcopy", "-s", "1024")
	}
	add("rc_verbs", "put_lat", "-D", "short")
	add("rc_verbs", "put_bw", "-D", "zcopy", "-s", "65536")
	add("rc_verbs", "get", "-D", "zcopy", "-s", "65536")
	add("rc_verbs", "add_lat", "-D", "short", "-s", "8")
	add("rc_verbs", "cswap", "-D", "short", "-s", "8")
	runPairs(t, pairs)
}
