package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// Without rdma_cm qperf addresses its peer by a LID. RoCE has none, so that it is run with --lids. With -cm1 it needs the
// connection manager. Debian's has no tests of XRC.
func TestQperf(t *testing.T) {
	tests := []string{
		"rc_bi_bw", "rc_bw", "rc_lat", "uc_bi_bw", "uc_bw", "uc_lat", "ud_bi_bw", "ud_bw", "ud_lat",
		"rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat",
		"uc_rdma_write_bw", "uc_rdma_write_lat", "uc_rdma_write_poll_lat",
		"rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add",
	}
	var pairs []pair
	for _, test := range tests {
		server := []string{"qperf", "--listen_port", "PORT"}
		pairs = append(pairs, pair{
			name: test, server: server, client: append(slices.Clip(server), "--time", "1", "localhost", test),
			want: []string{test + ":\n", " = "}, exec: []string{"--lids"}, serves: true, short: test == "rc_lat" || test == "ud_bw",
		})
	}
	runPairs(t, pairs)
}

// Without LIDs an address without a GRH is refused, and the refusal says why.
func TestNoLIDs(t *testing.T) {
	progtest.Need(t, "qperf")
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
	client := start(t, d[0].socket, "qperf", "--listen_port", fmt.Sprint(port), "--time", "1", "localhost", "rc_lat")
	if err := client.wait(ctx); err == nil {
		t.Fatal("it ran")
	}
	const refusal = "without GRH, which Ethernet needs"
	if !strings.Contains(client.out.String(), refusal) {
		until(t, server, refusal)
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
		p.exec = []string{"--sysfs"} // where it looks for the kind of its GIDs
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
