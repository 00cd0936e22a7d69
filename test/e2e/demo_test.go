package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// demo is what `softnicd demo -o json` prints: the names are an interface for scripts, so they are written down here
// again.
type demo struct {
	Link         string `json:"link"`
	Memory       string `json:"memory"`
	Applications []struct {
		Role        string `json:"role"`
		Device      string `json:"device"`
		GID         string `json:"gid"`
		QPN         uint32 `json:"qp_num"`
		CQCapacity  uint32 `json:"cq_capacity"`
		Completions []struct {
			WRID    uint64  `json:"wr_id"`
			Status  string  `json:"status"`
			Code    uint8   `json:"status_code"`
			Opcode  string  `json:"opcode"`
			ByteLen uint32  `json:"byte_len"`
			Imm     *uint32 `json:"imm"`
			QPN     uint32  `json:"qp_num"`
			Took    int64   `json:"took_ns"`
		} `json:"completions"`
		Events        []string `json:"events"`
		BytesVerified int      `json:"bytes_verified"`
		Differences   []string `json:"differences"`
	} `json:"applications"`
	Packets []struct {
		At     int64  `json:"at_ns"`
		From   string `json:"from"`
		To     string `json:"to"`
		Opcode string `json:"opcode"`
		PSN    uint32 `json:"psn"`
		Bytes  int    `json:"bytes"`
		Note   string `json:"note"`
	} `json:"packets"`
	Differences []string `json:"differences"`
	OK          bool     `json:"ok"`
}

// The completions that the issue asks for: wr_id, status_code, opcode, byte_len, immediate.
var conversation = map[string][]string{
	"sender": {
		"1 0 SEND 4096", "2 0 SEND 64", "3 0 RDMA_WRITE 9000", "4 0 RDMA_WRITE 3000", "5 0 RDMA_READ 9000", "6 0 COMP_SWAP 8",
		"7 0 FETCH_ADD 8", "8 10  0", "9 5  0", "10 5  0", // REM_ACCESS_ERR, then WR_FLUSH_ERR
	},
	"receiver": {
		"1001 0 RECV 4096", "1002 0 RECV 64 imm 0x11223344", "1003 0 RECV_RDMA_WITH_IMM 3000 imm 0x55667788",
		"1004 5  0", "1005 5  0",
	},
}

// The packets, PSNs counted from the first, that carry this conversation at a path MTU of 4096. What both sides have in
// flight at once may pass in any order; here only the last three requests are.
var requests = []string{
	"RC_SEND_ONLY +0 4096", "RC_SEND_ONLY_WITH_IMMEDIATE +1 64",
	"RC_RDMA_WRITE_FIRST +2 4096", "RC_RDMA_WRITE_MIDDLE +3 4096", "RC_RDMA_WRITE_LAST +4 808",
	"RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE +5 3000", "RC_RDMA_READ_REQUEST +6 0", "RC_COMPARE_SWAP +9 0", "RC_FETCH_ADD +10 0",
	"RC_RDMA_WRITE_ONLY +11 64", "RC_SEND_ONLY +12 64", "RC_SEND_ONLY +13 64",
}

var responses = []string{
	"RC_ACKNOWLEDGE +0 0 ACK", "RC_ACKNOWLEDGE +1 0 ACK", "RC_ACKNOWLEDGE +4 0 ACK", "RC_ACKNOWLEDGE +5 0 ACK",
	"RC_RDMA_READ_RESPONSE_FIRST +6 4096 ACK", "RC_RDMA_READ_RESPONSE_MIDDLE +7 4096", "RC_RDMA_READ_RESPONSE_LAST +8 808 ACK",
	"RC_ATOMIC_ACKNOWLEDGE +9 0 ACK", "RC_ATOMIC_ACKNOWLEDGE +10 0 ACK", "RC_ACKNOWLEDGE +11 0 NAK remote access error",
}

// runDemo runs the demo as JSON.
func runDemo(t *testing.T, args ...string) demo {
	t.Helper()
	r := softnic(t, patience, append([]string{"demo", "-o", "json", "--port", strconv.Itoa(freePort(t))}, args...)...)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stderr, r.stdout)
	}
	var d demo
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	dec.DisallowUnknownFields()
	check(t, dec.Decode(&d))
	return d
}

func TestDemo(t *testing.T) {
	for _, c := range []struct {
		name, link, memory string
		args               []string
	}{
		{"udp", "udp", "shared", nil},
		{"local", "local", "shared", []string{"--local"}},
		{"raw", "raw", "shared", []string{"--link", "raw"}},
		{"process", "udp", "process", []string{"--mr", "process"}},
		{"local process", "local", "process", []string{"--local", "--mr", "process"}},
		{"ipv6", "local", "shared", []string{"--ipv6"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.link == "raw" {
				needRaw(t)
			}
			gids := [2]string{"127.0.0.1", "127.0.0.2"}
			switch {
			case c.name == "ipv6":
				needIPv6(t)
				gids = [2]string{"::1", "::1"}
			case c.link == "local":
				gids[1] = gids[0]
			}
			d := runDemo(t, c.args...)
			if !d.OK || d.Link != c.link || d.Memory != c.memory || len(d.Differences) > 0 || len(d.Applications) != 2 {
				t.Fatalf("%+v", d)
			}
			checkApplications(t, &d, gids)
			checkPackets(t, &d)

			r := softnic(t, patience, append([]string{"demo", "--port", strconv.Itoa(freePort(t))}, c.args...)...)
			if r.code != 0 {
				t.Fatalf("as text: exit code %d\n%s\n%s", r.code, r.stderr, r.stdout)
			}
			checkText(t, r.stdout)
			t.Logf("text in %v", r.took)
		})
	}
}

// needIPv6 skips a test on a host without IPv6 on loopback.
func needIPv6(t *testing.T) {
	t.Helper()
	c, err := net.ListenPacket("udp", "[::1]:0")
	if err != nil {
		t.Skip("this host has no IPv6: ", err)
	}
	c.Close()
}

func checkApplications(t *testing.T, d *demo, gids [2]string) {
	t.Helper()
	for i, role := range []string{"sender", "receiver"} {
		a := &d.Applications[i]
		device := "softnic0"
		if i == 1 && gids[1] != gids[0] {
			device = "softnic1"
		}
		if a.Role != role || a.Device != device || a.GID != gids[i] || a.CQCapacity < 1024 || len(a.Differences) > 0 {
			t.Errorf("application %d: %+v", i, a)
		}
		var got []string
		for _, c := range a.Completions {
			s := fmt.Sprintf("%d %d %s %d", c.WRID, c.Code, c.Opcode, c.ByteLen)
			if c.Imm != nil {
				s += fmt.Sprintf(" imm %#x", *c.Imm)
			}
			got = append(got, s)
			if c.QPN != a.QPN || c.Took <= 0 || c.Took > int64(patience) {
				t.Errorf("%s: completion of QP %#x, of %#x expected, after %d ns", role, c.QPN, a.QPN, c.Took)
			}
		}
		if !reflect.DeepEqual(got, conversation[role]) {
			t.Errorf("%s saw\n%s\nexpected\n%s", role, strings.Join(got, "\n"), strings.Join(conversation[role], "\n"))
		}
	}
	// READ and two results of atomics; SEND, SEND with immediate, WRITE, WRITE with immediate, and the word.
	if s, r := d.Applications[0].BytesVerified, d.Applications[1].BytesVerified; s != 9000+8+8 || r != 4096+64+9000+3000+8 {
		t.Errorf("%d and %d bytes verified", s, r)
	}
	if e := d.Applications[1].Events; len(e) == 0 || e[len(e)-1] != "IBV_EVENT_QP_ACCESS_ERR" {
		t.Errorf("events of the receiver: %q", e)
	}
}

func checkPackets(t *testing.T, d *demo) {
	t.Helper()
	if len(d.Packets) == 0 {
		t.Fatal("no packets")
	}
	start, last := d.Packets[0].PSN, int64(0)
	got := map[string][]string{}
	again := repetitions{first: map[string]int64{}}
	for _, p := range d.Packets {
		s := fmt.Sprintf("%s +%d %d", p.Opcode, (p.PSN-start)&0xffffff, p.Bytes)
		if p.Note != "" {
			s += " " + p.Note
		}
		way := p.From + " to " + p.To
		if !slices.Contains(got[way], s) {
			got[way] = append(got[way], s)
		}
		if !again.allowed(p.From == "sender", s, p.At) {
			t.Errorf("%s once more at %d ns, for no reason", s, p.At)
		}
		if p.At < last {
			t.Errorf("%s at %d ns, after one at %d ns", s, p.At, last)
		}
		last = p.At
	}
	want := map[string][]string{"sender to receiver": requests, "receiver to sender": responses}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("packets\n%s\nexpected\n%s", lines(got), lines(want))
	}
}

// repetitions are packets that were there before. A machine that stalls makes a requester ask once more after its oldest packet,
// by itself after some silence, with what came behind it after 67 ms, and the peer answer again.
type repetitions struct {
	first    map[string]int64 // when a packet went first
	asking   bool             // the last request was such a one
	answered bool             // there was a reason to answer again
}

// allowed takes in a packet, and reports whether it may be there.
func (r *repetitions) allowed(request bool, packet string, at int64) bool {
	first, before := r.first[packet]
	if !before {
		r.first[packet] = at
	}
	if !request {
		return !before || r.answered
	}
	// The device's limit probe is 1 ms; what is stamped may have waited.
	const silence = int64(time.Millisecond / 2)
	ok := !before || r.asking || at-first > silence
	r.asking = before
	r.answered = r.answered || before
	return ok
}

// A packet is repeated after silence, and not otherwise.
func TestRepetitions(t *testing.T) {
	type packet struct {
		request bool
		what    string
		at      int64
	}
	const late = int64(2 * time.Millisecond)
	for _, c := range []struct {
		packets []packet
		want    bool
	}{
		{[]packet{{true, "a", 0}, {false, "A", 1}, {true, "b", 2}, {false, "B", 3}}, true},
		{[]packet{{true, "a", 0}, {true, "b", 1}, {true, "a", late}, {true, "b", late}, {false, "A", late}, {false, "A", late + 1}}, true},
		{[]packet{{true, "a", 0}, {true, "a", 5}}, false},
		{[]packet{{true, "a", 0}, {false, "A", 1}, {false, "A", 2}}, false},
		{[]packet{{true, "a", 0}, {true, "b", 1}, {true, "a", late}, {true, "c", late}, {true, "c", late + 1}}, false},
	} {
		r, got := repetitions{first: map[string]int64{}}, true
		for _, p := range c.packets {
			got = r.allowed(p.request, p.what, p.at) && got
		}
		if got != c.want {
			t.Errorf("%v: %v", c.packets, got)
		}
	}
}

func lines(m map[string][]string) string {
	var s string
	for k, v := range m {
		s += k + "\n  " + strings.Join(v, "\n  ") + "\n"
	}
	return s
}

// checkText looks for what a person is shown.
func checkText(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{
		"wr_id", "byte_len", "qp_num", "took", "remote access error", "Work Request Flushed Error", "0x11223344",
		"RC_RDMA_READ_RESPONSE_MIDDLE psn 0x", "NAK remote access error", "IBV_EVENT_QP_ACCESS_ERR", "25184 bytes verified",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "DIFFERS") {
		t.Error(text)
	}
}

func TestDemoBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--nosuch"}, {"-o", "xml"}, {"--mr", "borrowed"}, {"--port", "many"}, {"--link", "dsl"}, {"extra"},
	} {
		r := softnic(t, patience, append([]string{"demo"}, args...)...)
		if r.code != 2 || r.stdout != "" || !strings.HasPrefix(r.stderr, "softnicd: ") {
			t.Errorf("demo %v: exit code %d, %q", args, r.code, r.stderr)
		}
	}
}

// A taken port is not the demo's failure but the machine's state: exit 3, and a sentence.
func TestDemoPortTaken(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip)})
		check(t, err)
		defer c.Close()
		port := c.LocalAddr().(*net.UDPAddr).Port
		oneSentence(t, softnic(t, patience, "demo", "--port", strconv.Itoa(port)), 3, ip, strconv.Itoa(port), "stop it or")
	}
}

// A directory that cannot be written is an ordinary failure.
func TestDemoCaptureFails(t *testing.T) {
	r := softnic(t, patience, "demo", "--port", strconv.Itoa(freePort(t)), "--capture", t.TempDir()+"/no/such.pcapng")
	if r.code != 1 || !strings.Contains(r.stderr, "no such file") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
}

// oneSentence expects an exit code and one line on standard error that says certain things.
func oneSentence(t *testing.T, r result, code int, says ...string) {
	t.Helper()
	text := strings.TrimSuffix(r.stderr, "\n")
	ok := r.code == code && strings.HasPrefix(text, "softnicd: ") && !strings.Contains(text, "\n")
	for _, s := range says {
		ok = ok && strings.Contains(text, s)
	}
	if !ok {
		t.Errorf("exit code %d, %q; want %d and one line with %q", r.code, r.stderr, code, says)
	}
}
