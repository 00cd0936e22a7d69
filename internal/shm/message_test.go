package shm

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMessageWithDescriptors(t *testing.T) {
	noLeak(t)
	a, b := socketpair(t)
	mem := must[int](t)(Create("passed", 4096))
	event := must[int](t)(NewEvent())
	closing(t, mem, event)
	if err := SendMsg(a, []byte("hello"), mem, event); err != nil {
		t.Fatal(err)
	}
	if err := SendMsg(a, []byte("again")); err != nil {
		t.Fatal(err)
	}
	var buf [16]byte
	fds := []int{-1, -1, -1}
	n, nfds, err := RecvMsg(b, buf[:], fds, nil)
	if err != nil || string(buf[:n]) != "hello" || nfds != 2 {
		t.Fatalf("%q, %d descriptors, %v", buf[:n], nfds, err)
	}
	closing(t, fds[0], fds[1])
	for _, fd := range fds[:2] {
		if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
			t.Error("a descriptor stays open over exec")
		}
	}
	view := must[[]byte](t)(Map(fds[0], 4096))
	Unmap(view)
	if n, nfds, err = RecvMsg(b, buf[:], fds, nil); err != nil || string(buf[:n]) != "again" || nfds != 0 {
		t.Errorf("%q, %d descriptors, %v", buf[:n], nfds, err)
	}
	if _, _, err = RecvMsg(b, buf[:], fds, nil); err != unix.EAGAIN {
		t.Errorf("nothing there: %v", err)
	}
	unix.Shutdown(a, unix.SHUT_RDWR)
	if n, nfds, err = RecvMsg(b, buf[:], fds, nil); n != 0 || nfds != 0 || err != nil {
		t.Errorf("end: %d, %d, %v", n, nfds, err)
	}
	if err := SendMsg(a, []byte("x")); err != unix.EPIPE {
		t.Errorf("send after the end: %v", err)
	}
}

func TestBadMessagesLeakNothing(t *testing.T) {
	mem := must[int](t)(Create("passed", 4096))
	closing(t, mem)
	many := func(n int) (fds []int) {
		for range n {
			fds = append(fds, mem)
		}
		return fds
	}
	for _, c := range []struct {
		name  string
		bytes int
		fds   int
		room  int
		want  error
		says  string
	}{
		{"fits", 16, 2, 2, nil, ""},
		{"longer than the buffer", 17, 2, 2, unix.EMSGSIZE, "longer than 16"},
		{"one descriptor too many", 16, 1, 0, ErrDescriptors, "1 descriptors where 0"},
		{"many too many", 16, MaxDescriptors, 1, ErrDescriptors, ""},
		{"more than there is room for", 16, 253, 1, ErrDescriptors, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			a, b := socketpair(t)
			// Not by SendMsg: the peer is another's program.
			if err := unix.Sendmsg(a, make([]byte, c.bytes), unix.UnixRights(many(c.fds)...), nil, 0); err != nil {
				t.Fatal(err)
			}
			var buf [16]byte
			fds := make([]int, c.room)
			closer := NewCloser(4)
			n, nfds, err := RecvMsg(b, buf[:], fds, closer)
			closer.Wait()
			if !errors.Is(err, c.want) || err != nil && (n != 0 || nfds != 0 || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%d bytes, %d descriptors, %v", n, nfds, err)
			}
			for _, fd := range fds[:nfds] {
				unix.Close(fd)
			}
		})
	}
	if err := SendMsg(mem, nil, many(MaxDescriptors+1)...); !errors.Is(err, unix.EINVAL) {
		t.Errorf("send too many: %v", err)
	}
}

// With no descriptor free the kernel delivers the message without those it carries.
func TestNoDescriptorFree(t *testing.T) {
	noLeak(t)
	a, b := socketpair(t)
	mem := must[int](t)(Create("passed", 4096))
	closing(t, mem)
	if err := SendMsg(a, []byte("hello"), mem); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// Fill the gaps below the highest descriptor, then allow none above.
	var fill []int
	top := unix.Rlimit{Cur: 64, Max: limit.Max}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &top)
	for {
		fd, err := unix.Dup(a)
		if err != nil {
			break
		}
		fill = append(fill, fd)
	}
	var buf [16]byte
	fds := []int{-1}
	n, nfds, err := RecvMsg(b, buf[:], fds, nil)
	for _, fd := range fill {
		unix.Close(fd)
	}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if !errors.Is(err, ErrDescriptors) {
		t.Errorf("%d bytes, %d descriptors, %v", n, nfds, err)
	}
}
