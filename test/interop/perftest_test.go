package interop

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// perftest is a pair of one of perftest's programs. Its port is a TCP port by which the two sides meet; -F lets it run where
// the clock of processors is not fixed.
func perftest(program string, options ...string) pair {
	args := slices.Concat([]string{program, "-p", "PORT", "-F"}, options)
	p := same(strings.Join(append([]string{program}, options...), " "), args, "localhost")
	p.want = []string{"#bytes"}
	return p
}

func TestPerftest(t *testing.T) {
	var pairs []pair
	add := func(program string, options ...string) *pair {
		pairs = append(pairs, perftest(program, options...))
		return &pairs[len(pairs)-1]
	}
	for _, op := range []string{"send", "write", "read", "atomic"} {
		bw, lat := "ib_"+op+"_bw", "ib_"+op+"_lat"
		add(bw, "-n", "1000").short = true
		add(lat, "-n", "1000").short = true
		add(bw, "-n", "500", "-q", "16")
		add(bw, "-n", "500", "-q", "16", "--mr_per_qp")
		add(bw, "-D", "1")
		add(lat, "-D", "1")
		add(bw, "-n", "512", "-l", "16")
		add(bw, "-n", "1000", "-b")
		if op != "atomic" { // 8 bytes each
			// Both sides measure the processor's clock again for each size, spinning for 0.22 s of gettimeofday: 5 s of an
			// idle machine, and minutes of a loaded one. With -C the programs of latency do without.
			add(bw, "-n", "20", "-a").limit = 5 * time.Minute
			add(lat, "-n", "20", "-a", "-C").limit = 5 * time.Minute
		}
		if op != "write" { // which polls memory
			add(bw, "-n", "500", "-e")
			add(lat, "-n", "500", "-e")
		}
	}
	for _, op := range []string{"send", "write"} {
		add("ib_"+op+"_bw", "-n", "1000", "-c", "UC")
		add("ib_"+op+"_lat", "-n", "1000", "-c", "UC")
		add("ib_"+op+"_lat", "-n", "1000", "-I", "64", "-s", "64")
	}
	for _, op := range []string{"send", "write", "read"} {
		add("ib_"+op+"_bw", "-n", "1000", "-c", "XRC")
		add("ib_"+op+"_lat", "-n", "1000", "-c", "XRC")
	}
	// With -n, perftest posts that many receives at the most, even if they are for all queue pairs of an SRQ, and posts one
	// again for each that completes. A datagram that finds the SRQ empty is dropped and never made up for, and the receiver
	// waits for it for ever. So the datagrams of several queue pairs end by the clock.
	for _, service := range []string{"RC", "UD", "XRC"} {
		add("ib_send_bw", "-n", "500", "-c", service, "--use-srq")
	}
	for _, service := range []string{"RC", "XRC"} {
		add("ib_send_bw", "-n", "120", "-c", service, "--use-srq", "-q", "4")
	}
	add("ib_send_bw", "-D", "1", "-c", "UD", "--use-srq", "-q", "4")
	add("ib_send_bw", "-n", "500", "-c", "UD", "-s", "1024").short = true
	add("ib_send_lat", "-n", "1000", "-c", "UD", "-s", "1024")
	add("ib_send_bw", "-n", "500", "-c", "UD", "-s", "1024", "-b")
	add("ib_send_bw", "-n", "20", "-c", "UD", "-a").limit = 5 * time.Minute
	add("ib_atomic_bw", "-n", "1000", "-A", "FETCH_AND_ADD")
	add("ib_atomic_bw", "-n", "1000", "-A", "CMP_AND_SWAP")
	add("ib_send_lat", "-n", "20", "-a").limit = 5 * time.Minute
	add("ib_write_bw", "-n", "200", "-q", "64")
	add("ib_write_bw", "-n", "100", "-s", "8388608")
	runPairs(t, pairs)
}
