package shm

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// robustChild publishes itself as alive in the memory passed as descriptor 4, says so on socket 3, and waits to be
// killed.
func robustChild() {
	fd, mem, err := Published("alive", 4096)
	if err != nil {
		panic(err)
	}
	if _, err := StartRobust(mem[64:], time.Millisecond, func() { mem[128]++ }); err != nil {
		panic(err)
	}
	if err := SendMsg(3, []byte("alive"), fd); err != nil {
		panic(err)
	}
	if os.Getenv("SOFTNIC_SHM_EXIT") != "" {
		var b [1]byte
		unix.Read(3, b[:])
		os.Exit(3)
	}
	time.Sleep(time.Minute)
}

// The word is marked, and a sleeper woken, however the process ends; a read-only mapping is enough to see it.
func TestDeathIsMarked(t *testing.T) {
	for _, way := range []string{"kill", "exit"} {
		t.Run(way, func(t *testing.T) {
			noLeak(t)
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pair[0])
			theirs := os.NewFile(uintptr(pair[1]), "peer")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "SOFTNIC_SHM_CHILD=robust")
			if way == "exit" {
				cmd.Env = append(cmd.Env, "SOFTNIC_SHM_EXIT=1")
			}
			cmd.Stderr = os.Stderr
			cmd.ExtraFiles = []*os.File{theirs}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			defer cmd.Wait()
			defer cmd.Process.Kill()
			var buf [16]byte
			var fds [1]int
			if _, n, err := RecvMsg(pair[0], buf[:], fds[:], nil); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			defer unix.Close(fds[0])
			mem := must[[]byte](t)(MapReadOnly(fds[0], 4096))
			defer Unmap(mem)

			word := mem[64:]
			if Died(word) {
				t.Fatal("dead from the start")
			}
			beat := mem[128]
			if died, err := WaitDeath(word, 20*time.Millisecond); died || err != nil {
				t.Fatal(died, err)
			}
			if mem[128] == beat {
				t.Error("the heart does not beat")
			}
			slept := make(chan error)
			go func() {
				// A signal would wake it as well: this thread takes none, and ends with the goroutine.
				runtime.LockOSThread()
				all := new(unix.Sigset_t)
				for i := range all.Val {
					all.Val[i] = ^all.Val[i]
				}
				if err := unix.PthreadSigmask(unix.SIG_BLOCK, all, nil); err != nil {
					slept <- err
					return
				}
				slept <- futexWait(word, loadFutex(word), 10*time.Second)
			}()
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			if way == "kill" {
				cmd.Process.Kill()
			} else {
				unix.Write(pair[0], []byte("x"))
			}
			if err := <-slept; err != nil || !Died(word) {
				t.Errorf("sleeper: %v, dead %v", err, Died(word))
			}
			if died, err := WaitDeath(word, time.Second); !died || err != nil {
				t.Errorf("wait for the dead: %v, %v", died, err)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("seen after %v", d)
			}
		})
	}
}

func TestRobustClose(t *testing.T) {
	noLeak(t)
	goroutines := runtime.NumGoroutine()
	fd, mem, err := Published("alive", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer Unmap(mem)
	var beats atomic.Int32
	r := must[*RobustWord](t)(StartRobust(mem, time.Hour, func() { beats.Add(1) }))
	if Died(mem) {
		t.Error("dead from the start")
	}
	slept := make(chan bool)
	go func() {
		died, _ := WaitDeath(mem, 10*time.Second)
		slept <- died
	}()
	time.Sleep(5 * time.Millisecond)
	r.Close()
	if !<-slept || !Died(mem) {
		t.Error("close is not seen")
	}
	if beats.Load() != 1 {
		t.Errorf("%d beats", beats.Load())
	}
	for end := time.Now().Add(time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, before %d", n, goroutines)
	}
	for name, word := range map[string][]byte{"misplaced": mem[1:], "short": mem[:3], "none": nil} {
		if _, err := StartRobust(word, 0, nil); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
