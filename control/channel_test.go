package control

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// readEvents reads channel events until want were counted, and returns them by cookie.
func readEvents(t *testing.T, fd, want int) map[uint64]int {
	t.Helper()
	got := map[uint64]int{}
	var m [16]byte
	deadline := time.Now().Add(5 * time.Second)
	for n := 0; n < want; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d events came", n, want)
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if k, _ := unix.Poll(p, 100); k == 0 {
			continue
		}
		k, err := unix.Read(fd, m[:])
		if err != nil || k != 16 {
			t.Fatalf("read: %d bytes, %v", k, err)
		}
		count := int(binary.LittleEndian.Uint32(m[8:]))
		got[binary.LittleEndian.Uint64(m[:])] += count
		n += count
	}
	return got
}

// The case: 1,000 armed queues on one channel that nobody reads. Nobody is delayed, and nothing is lost.
func TestChannelNobodyReads(t *testing.T) {
	ch, fd, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	t.Cleanup(ch.box.close)
	const queues, rounds = 1000, 3
	notifiers := make([]notifier, queues)
	start := time.Now()
	for r := range rounds {
		for i := range notifiers {
			notifiers[i].channel = ch
			notifiers[i].Notify(uint64(i+1), uint32(r))
		}
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("%d events took %v", queues*rounds, d)
	}
	if !ch.box.pending() {
		t.Fatal("the socket took everything: the test shows nothing")
	}
	got := readEvents(t, fd, queues*rounds)
	for i := range notifiers {
		if got[uint64(i+1)] != rounds {
			t.Fatalf("queue %d: %d events, want %d", i, got[uint64(i+1)], rounds)
		}
	}
	ch.box.mu.Lock()
	defer ch.box.mu.Unlock()
	if ch.first != nil || ch.last != nil {
		t.Error("something is still queued")
	}
}

// A queue that is destroyed takes its pending events with it.
func TestChannelDrop(t *testing.T) {
	ch, fd, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer ch.box.close()
	stay, gone := &notifier{channel: ch}, &notifier{channel: ch}
	n := 0
	for ; !ch.box.pending(); n++ {
		stay.Notify(1, 1)
	}
	gone.Notify(2, 2)
	gone.Notify(2, 2)
	stay.Notify(1, 1)
	gone.drop()
	gone.Notify(2, 2)
	if got := readEvents(t, fd, n+1); got[2] != 0 || got[1] != n+1 {
		t.Fatalf("got %v, want %d of queue 1 alone", got, n+1)
	}
}

// A shard that notifies allocates nothing.
func TestNotifyAllocs(t *testing.T) {
	ch, fd, err := newChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer ch.box.close()
	n := &notifier{channel: ch}
	var m [16]byte
	if a := testing.AllocsPerRun(100, func() {
		n.Notify(1, 1)
		unix.Read(fd, m[:])
	}); a != 0 {
		t.Errorf("%v allocations for an event", a)
	}
}
