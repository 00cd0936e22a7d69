// Package ctl is the control protocol between an application and the daemon: fixed-layout little-endian messages on a
// SOCK_SEQPACKET socket, descriptors by SCM_RIGHTS. One request is answered by one reply with the same tag.
//
// A message is a [Header] and the struct of its operation, as declared: every field is aligned naturally and there is no
// hidden padding (a test proves it), so that the generated C header has the same layout. A reply whose errno is not 0 has
// a sentence of text, at most [MaxSentence] bytes, in place of the struct.
//
//	msg, _ := ctl.Append(nil, ctl.OpAllocPD, tag, 0, &ctl.AllocPD{})
//	h, body, err := ctl.Split(msg)
//
// Handles are small integers of one session; the handle of another session names nothing.
package ctl

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// Version is the protocol's version.
const Version = 1

// Limits of a message.
const (
	MaxMessage     = 4096
	MaxSentence    = 512
	MaxDescriptors = 4
)

// Header starts every message.
type Header struct {
	Size    uint32 // bytes of the message, header included
	Version uint16
	Op      Op
	Tag     uint32 // chosen by the requester, echoed
	Errno   uint32 // replies: 0, or why not
}

// HeaderSize is the bytes of a Header.
const HeaderSize = 16

// Op is an operation.
type Op uint16

// Operations. A number, once given, keeps its meaning.
const (
	OpListDevices    Op = 1
	OpOpen           Op = 2
	OpQueryDevice    Op = 3
	OpQueryPort      Op = 4
	OpQueryGID       Op = 5
	OpQueryPKey      Op = 6
	OpAddArena       Op = 7
	OpRemoveArena    Op = 8
	OpAllocPD        Op = 9
	OpDeallocPD      Op = 10
	OpRegMR          Op = 11
	OpDeregMR        Op = 12
	OpCreateChannel  Op = 13
	OpDestroyChannel Op = 14
	OpCreateCQ       Op = 15
	OpDestroyCQ      Op = 16
	OpCreateQP       Op = 17
	OpModifyQP       Op = 18
	OpQueryQP        Op = 19
	OpDestroyQP      Op = 20
	OpQueryCounters  Op = 21
	OpResizeCQ       Op = 22
	OpModifyCQ       Op = 23
	OpAllocMW        Op = 24
	OpDeallocMW      Op = 25
	OpReregMR        Op = 26
)

// Error is a refused request: an errno and a sentence that names the object.
type Error struct {
	Op       Op
	Errno    syscall.Errno
	Sentence string
}

func (e *Error) Error() string { return e.Sentence }

// Unwrap lets errors.Is find the errno.
func (e *Error) Unwrap() error { return e.Errno }

// Attachment is what travels beside a message: a descriptor, or, between an application and a device embedded in it,
// memory of the process.
type Attachment struct {
	FD     int    // -1 if none
	Memory []byte // embedded devices only
}

// Conn is a session with a device, seen from the application: the socket of a daemon, or a device in the same process.
type Conn interface {
	// Call sends a request and waits for its reply, which it decodes into reply. Attachments of the request stay the
	// caller's; those returned are the caller's to close. A refusal is a *Error.
	Call(op Op, request, reply any, attach ...Attachment) ([]Attachment, error)
	// Done is closed when the session has ended: the daemon died or closed it.
	Done() <-chan struct{}
	Close() error
}

// Append encodes a message.
func Append(dst []byte, op Op, tag uint32, errno syscall.Errno, body any) ([]byte, error) {
	n := binary.Size(body)
	if n < 0 || HeaderSize+n > MaxMessage {
		return dst, fmt.Errorf("ctl: body of %v cannot be encoded", op)
	}
	dst, _ = binary.Append(dst, binary.LittleEndian, &Header{uint32(HeaderSize + n), Version, op, tag, uint32(errno)})
	return binary.Append(dst, binary.LittleEndian, body)
}

// AppendError encodes a refusal.
func AppendError(dst []byte, op Op, tag uint32, errno syscall.Errno, sentence string) []byte {
	if len(sentence) > MaxSentence {
		sentence = sentence[:MaxSentence]
	}
	dst, _ = binary.Append(dst, binary.LittleEndian, &Header{uint32(HeaderSize + len(sentence)), Version, op, tag, uint32(errno)})
	return append(dst, sentence...)
}

// Split checks a message's header against its length and returns the body.
func Split(msg []byte) (h Header, body []byte, err error) {
	if len(msg) < HeaderSize {
		return h, nil, &Error{Errno: syscall.EINVAL, Sentence: fmt.Sprintf("message of %d bytes is shorter than its header", len(msg))}
	}
	binary.Decode(msg, binary.LittleEndian, &h)
	if int64(h.Size) != int64(len(msg)) {
		return h, nil, &Error{Op: h.Op, Errno: syscall.EINVAL, Sentence: fmt.Sprintf("message says %d bytes and has %d", h.Size, len(msg))}
	}
	return h, msg[HeaderSize:], nil
}

// Decode decodes a body, whose length must be that of the struct.
func Decode(op Op, body []byte, into any) error {
	if n := binary.Size(into); n != len(body) {
		return &Error{Op: op, Errno: syscall.EINVAL, Sentence: fmt.Sprintf("%v: body of %d bytes, %d expected", op, len(body), n)}
	}
	_, err := binary.Decode(body, binary.LittleEndian, into)
	return err
}
