package nettest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {unix.EPERM, true}, {fmt.Errorf("veth pair: %w", unix.EPERM), true}, {unix.EACCES, true}, {unix.ENOSPC, true},
		{unix.ENOSYS, true}, {unix.EINVAL, false}, {fmt.Errorf("address: %w", unix.EEXIST), false},
	} {
		if Unable(c.err) != c.want {
			t.Errorf("%v: %v", c.err, !c.want)
		}
	}
}
