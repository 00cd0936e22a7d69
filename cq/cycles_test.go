package cq

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/internal/yield"
)

var cycles = flag.Int("cq.cycles", 100_000, "how often TestSleepCycles arms and sleeps; make cq-cycles says 10 million")

// cyclesVariable tells a test binary that it is the application of TestSleepCycles, and how often it is to sleep.
const cyclesVariable = "SOFTNICD_CQ_CYCLES"

func TestMain(m *testing.M) {
	if n := os.Getenv(cyclesVariable); n != "" {
		if err := sleeper(n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	cyclesCapacity = 64
	// oversleep is when a sleep counts as one that does not end.
	oversleep = 5 * time.Second
)

// bell is a completion channel between processes. It counts, and the application takes one event at a time.
type bell int

func (b bell) Notify(uint64, uint32) {
	one := [8]byte{1}
	for {
		if _, err := unix.Write(int(b), one[:]); err != unix.EINTR {
			return
		}
	}
}

// Two processes that share the queue's memory: this one posts, the other polls, arms, and sleeps in the kernel until the
// event comes. A wake-up that is lost is a sleep that does not end. The times between posts go through everything from
// none to longer than the other needs to fall asleep, so that posts fall between any two of its instructions.
func TestSleepCycles(t *testing.T) {
	want := *cycles
	if testing.Short() {
		want = min(want, 20_000)
	}
	size := int(abi.CQBlockSize(cyclesCapacity))
	size = (size + os.Getpagesize() - 1) / os.Getpagesize() * os.Getpagesize()
	fd, err := shm.Create("cycles", size)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := shm.Map(fd, size)
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Unmap(memory)
	events, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	ring, rung := os.NewFile(uintptr(fd), "ring"), os.NewFile(uintptr(events), "events")
	defer ring.Close()
	defer rung.Close()
	q, err := New(Config{Block: memory, Capacity: cyclesCapacity, Notifier: bell(events)})
	if err != nil {
		t.Fatal(err)
	}
	app := exec.Command(os.Args[0])
	app.Env = append(os.Environ(), cyclesVariable+"="+strconv.Itoa(want))
	app.ExtraFiles = []*os.File{ring, rung}
	app.Stderr = os.Stderr
	begin := time.Now()
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Wait() }()
	defer app.Process.Kill()
	posted := uint64(0)
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("after %d entries and %d events: %v", posted, q.Events(), err)
			}
			t.Logf("%d sleeps for %d entries in %v", want, posted, time.Since(begin).Round(time.Millisecond))
			return
		default:
		}
		for range 64 { // between looks at the channel
			// Only one at a time: the next entry would wake who sleeps although he should not.
			if q.Occupancy() > 0 {
				yield.Thread()
				continue
			}
			for range posted % 61 * posted % 37 { // a pause that is never the same for long
				q.Dead()
			}
			posted++
			if !q.Post(0, &abi.CQE{WRID: posted}, false) {
				t.Fatalf("entry %d: %v", posted, q.Err())
			}
		}
	}
}

// sleeper is the application's process.
func sleeper(n string) error {
	want, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	size := int(abi.CQBlockSize(cyclesCapacity))
	memory, err := shm.Map(3, (size+os.Getpagesize()-1)/os.Getpagesize()*os.Getpagesize())
	if err != nil {
		return err
	}
	r, err := NewReader(memory, cyclesCapacity)
	if err != nil {
		return err
	}
	var e [cyclesCapacity]abi.CQE
	next := uint64(1)
	for sleeps := 0; sleeps < want; {
		n, err := r.Poll(e[:])
		if err != nil {
			return err
		}
		for i := range n {
			if e[i].WRID != next {
				return fmt.Errorf("entry %d has wr_id %d", next, e[i].WRID)
			}
			next++
		}
		if n > 0 || r.ReqNotify(abi.ArmNext) {
			continue
		}
		if err := await(4); err != nil {
			return fmt.Errorf("sleep %d, before entry %d: %w", sleeps, next, err)
		}
		sleeps++
	}
	return nil
}

// await sleeps until there is an event, and takes it.
func await(fd int) error {
	var count [8]byte
	for {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		switch n, err := unix.Poll(fds[:], int(oversleep/time.Millisecond)); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("no event for %v", oversleep)
		}
		_, err := unix.Read(fd, count[:])
		return err
	}
}
