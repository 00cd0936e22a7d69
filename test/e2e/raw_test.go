package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// needRaw skips a test for want of CAP_NET_RAW.
func needRaw(t testing.TB) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("no packet socket: ", err)
	}
	syscall.Close(fd)
}

// Without CAP_NET_RAW the raw link says so, in one sentence, and what else there is: exit 3.
func TestRawWithoutRight(t *testing.T) {
	c := exec.Command(softnicd, "demo", "--link", "raw", "--port", strconv.Itoa(freePort(t)))
	if os.Geteuid() == 0 {
		asNobody(c)
	}
	oneSentence(t, finish(t, patience, c), 3, "CAP_NET_RAW", "udp link")
}
