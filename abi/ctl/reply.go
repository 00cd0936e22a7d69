package ctl

import (
	"fmt"
	"syscall"
)

// Reply judges the answer to the request (op, tag) and decodes it into reply. A refusal is a *Error.
func Reply(op Op, tag uint32, msg []byte, reply any) error {
	h, body, err := Split(msg)
	switch {
	case err != nil:
		return err
	case h.Tag != tag || h.Errno == 0 && h.Op != op:
		return &Error{Op: op, Errno: syscall.EPROTO, Sentence: fmt.Sprintf("operation %d with tag %d got the answer of %d with %d", op, tag, h.Op, h.Tag)}
	case h.Errno != 0:
		return &Error{Op: op, Errno: syscall.Errno(h.Errno), Sentence: string(body)}
	}
	return Decode(op, body, reply)
}
