package live

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// example is a program in C that is the same at both ends: Debian's in the machine, and here under softnicd exec.
type example struct {
	args  []string
	gid   string // the option that takes the GID index
	want  string // what the client prints when it did its work
	smoke bool   // among what CI runs
}

var examples = []example{
	{[]string{"ibv_rc_pingpong", "-n", "50", "-c"}, "-g", "50 iters in", true},
	{[]string{"ibv_rc_pingpong", "-n", "20", "-m", "4096", "-s", "65536", "-c"}, "-g", "20 iters in", false},
	{[]string{"ibv_rc_pingpong", "-n", "50", "-e"}, "-g", "50 iters in", false},
	{[]string{"ibv_uc_pingpong", "-n", "20", "-c"}, "-g", "20 iters in", false},
	{[]string{"ibv_ud_pingpong", "-n", "20", "-s", "1024", "-c"}, "-g", "20 iters in", false},
	{[]string{"ibv_srq_pingpong", "-n", "50", "-c"}, "-g", "50 iters in", true},
	{[]string{"ib_send_bw", "-n", "50", "-s", "65536", "-F"}, "-x", "BW average", false},
	{[]string{"ib_send_bw", "-n", "50", "-s", "1024", "-c", "UD", "-F"}, "-x", "BW average", false},
	{[]string{"ib_write_bw", "-n", "50", "-s", "65536", "-F"}, "-x", "BW average", true},
	{[]string{"ib_write_bw", "-n", "50", "-s", "8388608", "-t", "2", "-F"}, "-x", "BW average", false},
	{[]string{"ib_read_bw", "-n", "50", "-s", "65536", "-F"}, "-x", "BW average", false},
	{[]string{"ib_atomic_bw", "-n", "50", "-A", "FETCH_AND_ADD", "-F"}, "-x", "BW average", false},
	{[]string{"ib_send_lat", "-n", "50", "-s", "2", "-F"}, "-x", "t_avg", false},
	{[]string{"ib_write_lat", "-n", "50", "-s", "2", "-F"}, "-x", "t_avg", false},
	{[]string{"ib_read_lat", "-n", "50", "-s", "64", "-F"}, "-x", "t_avg", false},
	{[]string{"ib_atomic_lat", "-n", "50", "-A", "CMP_AND_SWAP", "-F"}, "-x", "t_avg", false},
}

// index is the place of an address family's GID in a table that is a link-local address, one of IPv4, one of IPv6; both
// devices have such a one.
var index = map[string]string{"v4": "1", "v6": "2"}

// TestPrograms runs rdma-core's examples and perftest between the machine and softnicd exec, either as the server.
func TestPrograms(t *testing.T) {
	m := theMachine(t)
	for _, link := range []string{"udp", "raw"} {
		t.Run(link, func(t *testing.T) {
			if link == "raw" {
				full(t)
			}
			d := startDaemon(t, m, "--link", link)
			for _, family := range []string{"v4", "v6"} {
				for _, e := range examples {
					t.Run(family+"/"+strings.Join(e.args, " "), func(t *testing.T) {
						if !e.smoke || family == "v6" {
							full(t)
						}
						progtest.Need(t, e.args[0])
						progtest.Need(t, "cc") // exec has no libraries without
						t.Run("we serve", func(t *testing.T) { e.hold(t, m, d, index[family], false) })
						t.Run("we call", func(t *testing.T) { e.hold(t, m, d, index[family], true) })
					})
				}
			}
		})
	}
}

// hold runs both ends to their end. Beside other work the machine can be silent for longer than the 0.54 s after which these
// programs give up, whoever is at the other end: if it was silent for half as long, as seen from beside them, they get another chance.
// So does, once, a program of the machine that ended by a segmentation fault, as one of some 150 has done, for a reason that is not
// known: the log has what its kernel said.
func (e example) hold(t *testing.T, m *machine, d *daemon, gid string, weCall bool) {
	t.Helper()
	theirs, crashed := "client", false
	if weCall {
		theirs = "server"
	}
	for try := 1; ; try++ {
		silence := m.watch()
		said, err := e.run(t, m, d, gid, weCall)
		longest := silence()
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), theirs+": exit status 139") && !crashed {
			crashed = true
			kernel, _ := m.in(t.Context(), "dmesg | tail -n 5").CombinedOutput()
			t.Logf("the machine's program crashed: %v\n%sits kernel:\n%s", err, said, kernel)
			continue
		}
		if try == 4 || longest < 270*time.Millisecond || !strings.Contains(said, "transport retry counter exceeded") {
			t.Fatalf("%v; the machine was silent for %v at most\n%s", err, longest, said)
		}
		t.Logf("the machine was silent for %v: %v", longest, err)
	}
}

// run runs both ends and returns what they said. They find each other by TCP over IPv4, whatever the family of their GIDs.
func (e example) run(t *testing.T, m *machine, d *daemon, gid string, weCall bool) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	port := 19000 + ports
	ports++
	args := slices.Concat(e.args, []string{e.gid, gid, "-p", fmt.Sprint(port)})
	program, err := softnicd()
	if err != nil {
		t.Fatal(err)
	}
	here := func(args []string) *exec.Cmd {
		return m.beside(ctx, slices.Concat([]string{program, "exec", "--socket", d.socket, "--"}, args)...)
	}
	// One that waits in vain for a peer that gave up ends by itself.
	there := func(args []string) *exec.Cmd { return m.in(ctx, "timeout 60 "+strings.Join(args, " ")) }
	var server, client *exec.Cmd
	if weCall {
		server, client = there(args), here(append(args, machine4.String()))
	} else {
		server, client = here(args), there(append(args, bridge4.String()))
	}
	var said, answered progtest.Buffer
	server.Stdout, server.Stderr = &said, &said
	client.Stdout, client.Stderr = &answered, &answered
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	m.listens(t, port, !weCall)
	err = client.Run()
	if err != nil {
		// The server has its time to say why, if it is the one that failed.
		select {
		case end := <-ended:
			err = fmt.Errorf("client: %w, server: %v", err, end)
		case <-time.After(5 * time.Second):
			cancel()
			err = fmt.Errorf("client: %w, server: %v", err, <-ended)
		}
	} else if end := <-ended; end != nil {
		err = fmt.Errorf("server: %w", end)
	} else if !strings.Contains(answered.String(), e.want) {
		err = fmt.Errorf("the client does not say %q", e.want)
	}
	return "server:\n" + said.String() + "client:\n" + answered.String(), err
}

var ports int

// listens waits until somebody listens on a TCP port, without a connection.
func (m *machine) listens(t *testing.T, port int, here bool) {
	t.Helper()
	line := fmt.Sprintf("grep -q ':%04X 0*:0000 0A' /proc/net/tcp /proc/net/tcp6", port)
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		look := m.in(ctx, line)
		if here {
			look = m.beside(ctx, "sh", "-c", line)
		}
		err := look.Run()
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("nobody listens on port %d", port)
}
