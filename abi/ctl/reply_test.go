package ctl

import (
	"errors"
	"syscall"
	"testing"
)

func TestReply(t *testing.T) {
	good, err := Append(nil, OpAllocPD, 7, 0, &HandleReply{Handle: 5})
	if err != nil {
		t.Fatal(err)
	}
	short, err := Append(nil, OpAllocPD, 7, 0, &Empty{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		msg   []byte
		op    Op
		tag   uint32
		errno syscall.Errno
		text  string
	}{
		{"answer", good, OpAllocPD, 7, 0, ""},
		{"refusal", AppendError(nil, OpAllocPD, 7, syscall.ENOMEM, "alloc pd: 4 of 4 in use"), OpAllocPD, 7, syscall.ENOMEM, "alloc pd: 4 of 4 in use"},
		{"refusal of a message that could not be read", AppendError(nil, 0, 7, syscall.EINVAL, "short"), OpAllocPD, 7, syscall.EINVAL, "short"},
		{"another tag", good, OpAllocPD, 8, syscall.EPROTO, ""},
		{"another operation", good, OpDeallocPD, 7, syscall.EPROTO, ""},
		{"half a message", good[:HeaderSize-1], OpAllocPD, 7, syscall.EINVAL, ""},
		{"body too short", short, OpAllocPD, 7, syscall.EINVAL, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r HandleReply
			err := Reply(c.op, c.tag, c.msg, &r)
			if c.errno == 0 {
				if err != nil || r.Handle != 5 {
					t.Fatalf("got %+v, %v", r, err)
				}
				return
			}
			if !errors.Is(err, c.errno) {
				t.Fatalf("got %v, want %v", err, c.errno)
			}
			if c.text != "" && err.Error() != c.text {
				t.Fatalf("got %q, want %q", err, c.text)
			}
		})
	}
}
