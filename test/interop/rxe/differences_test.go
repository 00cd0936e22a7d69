package rxe

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// difference is where an engine in rxe's place does not send the packets of a capture. Each line is a packet with the
// sign of who sends it: - rxe alone, + softnicd alone.
type difference struct {
	test    string // requester or responder, and the capture
	packets []string
	reason  string
}

var differences = []difference{
	{"responder nak_length_v4_mtu1024", []string{
		"- RC_ACKNOWLEDGE 0x100, NAK remote operational error, MSN 0",
		"- RC_ACKNOWLEDGE 0x100, NAK remote operational error, MSN 0",
		"+ RC_ACKNOWLEDGE 0x100, NAK invalid request, MSN 0",
		"+ RC_ACKNOWLEDGE 0x100, NAK invalid request, MSN 0",
	}, "a SEND longer than the receive is an invalid request (IBA 9.7.4); rxe calls it a remote operational error"},
	{"responder rnr_v4_mtu1024", []string{
		"- RC_ACKNOWLEDGE 0x101, NAK sequence error, MSN 1",
		"- RC_ACKNOWLEDGE 0x101, NAK sequence error, MSN 1",
		"- RC_ACKNOWLEDGE 0x104, ACK, MSN 2",
	}, "after an RNR NAK what follows is dropped in silence (IBA 9.7.5.2.8), where rxe adds a sequence NAK; " +
		"and a duplicate that does not ask for an answer gets none"},
	{"responder rnr_v6_mtu1024", []string{
		"- RC_ACKNOWLEDGE 0x101, NAK sequence error, MSN 1",
		"- RC_ACKNOWLEDGE 0x101, NAK sequence error, MSN 1",
		"- RC_ACKNOWLEDGE 0x101, NAK sequence error, MSN 1",
		"- RC_ACKNOWLEDGE 0x104, ACK, MSN 2",
	}, "the same over IPv6"},
	{"requester rnr_v4_mtu1024", []string{
		"- RC_RDMA_WRITE_FIRST 0x104, 1024 bytes, VA 0x1c37a000, 2048 bytes of 0x1065",
	}, "an RNR NAK says where to go on, and what is before it has arrived (IBA 9.7.5.2.8); rxe sends the message from its beginning, once"},
	{"requester rnr_v6_mtu1024", []string{
		"- RC_RDMA_WRITE_FIRST 0x104, 1024 bytes, VA 0x1c37a000, 2048 bytes of 0x1736",
	}, "the same over IPv6"},
	{"responder loss_req_v4_mtu1024", []string{
		"- RC_ACKNOWLEDGE 0x11f, ACK, MSN 8",
	}, "a duplicate that does not ask for an answer gets none"},
	{"responder loss_resp_v4_mtu1024", []string{
		"+ RC_RDMA_READ_RESPONSE_ONLY 0x127, 1024 bytes, ACK, MSN 11",
		"+ RC_RDMA_READ_RESPONSE_FIRST 0x128, 1024 bytes, ACK, MSN 12",
		"+ RC_RDMA_READ_RESPONSE_MIDDLE 0x129, 1024 bytes",
		"- RC_RDMA_READ_RESPONSE_MIDDLE 0x129, 1024 bytes",
		"+ RC_RDMA_READ_RESPONSE_FIRST 0x129, 1024 bytes, ACK, MSN 12",
		"+ RC_RDMA_READ_RESPONSE_MIDDLE 0x131, 1024 bytes",
		"- RC_RDMA_READ_RESPONSE_MIDDLE 0x131, 1024 bytes",
		"+ RC_RDMA_READ_RESPONSE_FIRST 0x131, 1024 bytes, ACK, MSN 14",
		"+ RC_ATOMIC_ACKNOWLEDGE 0x136, ACK, MSN 17",
	}, "the capture has not the responses that were lost: LAST 0x127, FIRST 0x128, MIDDLE 0x129 and 0x131, the first of 0x136; " +
		"and a READ that is asked for again from its middle begins with FIRST or ONLY (IBA 9.7.6.1), where rxe goes on with MIDDLE or LAST"},
	{"responder timeout_v4_mtu1024", []string{
		"+ RC_ACKNOWLEDGE 0x101, ACK, MSN 2",
		"+ RC_ACKNOWLEDGE 0x101, ACK, MSN 2",
		"+ RC_ACKNOWLEDGE 0x101, ACK, MSN 2",
		"+ RC_ACKNOWLEDGE 0x101, ACK, MSN 2",
	}, "rxe's queue pair was destroyed before these requests; ours is there"},
	{"requester loss_req_v4_mtu1024", []string{
		"+ RC_RDMA_WRITE_MIDDLE 0x10e, 1024 bytes",
		"+ RC_RDMA_WRITE_FIRST 0x110, 1024 bytes, VA 0x1c37a000, 4096 bytes of 0x278d",
		"+ RC_RDMA_WRITE_MIDDLE 0x111, 1024 bytes",
		"+ RC_RDMA_WRITE_MIDDLE 0x112, 1024 bytes",
		"+ RC_RDMA_WRITE_MIDDLE 0x116, 1024 bytes",
		"+ RC_RDMA_WRITE_MIDDLE 0x116, 1024 bytes",
		"+ RC_SEND_LAST 0x120, 1024 bytes",
		"+ RC_SEND_MIDDLE 0x11f, 1024 bytes",
	}, "the capture has not the requests that were lost: it was made behind the loss"},
	{"requester loss_resp_v4_mtu1024", []string{
		"- RC_SEND_FIRST 0x11e, 1024 bytes",
		"- RC_SEND_MIDDLE 0x11f, 1024 bytes",
		"- RC_SEND_LAST 0x120, 1024 bytes",
		"- RC_RDMA_READ_REQUEST 0x127, VA 0x1c37ac00, 1024 bytes of 0x28b5",
		"+ RC_RDMA_READ_REQUEST 0x129, VA 0x1c37a400, 3072 bytes of 0x28b5",
	}, "rxe's timeout of 67.1 ms ends after 65 ms twice (SEND 0x11e, READ 0x127), so that its answers come before ours ends; and a " +
		"response that is missing among others is asked for at once (IBA 9.7.5.1.1), where rxe waits for its timer"},
}

// compare holds what was sent to what rxe sent, both in order.
func compare(t *testing.T, test string, got, want []packet) {
	t.Helper()
	lines := diff(got, want)
	i := slices.IndexFunc(differences, func(d difference) bool { return d.test == test })
	switch {
	case i < 0 && len(lines) > 0:
		t.Errorf("%s differs from rxe:\n%s", test, join(lines))
	case i >= 0 && !slices.Equal(lines, differences[i].packets):
		t.Errorf("%s is said to differ (%s):\n%sbut differs:\n%s", test, differences[i].reason, join(differences[i].packets), join(lines))
	}
}

// A difference of a capture that is not there would never be looked at.
func TestDifferences(t *testing.T) {
	for _, d := range differences {
		_, name, _ := strings.Cut(d.test, " ")
		if _, err := os.Stat("testdata/" + name + ".pcap"); err != nil {
			t.Errorf("%s: %v", d.test, err)
		}
	}
}

func join(lines []string) (s string) {
	for _, l := range lines {
		s += "\t" + l + "\n"
	}
	return s
}

// diff is the shortest list of packets to leave out and to add, by their longest common subsequence.
func diff(got, want []packet) (lines []string) {
	length := make([][]int, len(got)+1)
	for i := range length {
		length[i] = make([]int, len(want)+1)
	}
	for i := len(got) - 1; i >= 0; i-- {
		for j := len(want) - 1; j >= 0; j-- {
			length[i][j] = max(length[i+1][j], length[i][j+1])
			if got[i].equal(want[j]) {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(got) || j < len(want) {
		switch {
		case i < len(got) && j < len(want) && got[i].equal(want[j]):
			i, j = i+1, j+1
		case j < len(want) && (i == len(got) || length[i][j+1] >= length[i+1][j]):
			lines = append(lines, "- "+want[j].String())
			j++
		default:
			lines = append(lines, "+ "+got[i].String())
			i++
		}
	}
	return lines
}
