package ctl

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// fill sets every field of *p to something.
func fill(v reflect.Value, rng *rand.Rand) {
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rng.Uint64()>>1 | 1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rng)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), rng)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, m := range messages {
		want := reflect.New(reflect.TypeOf(m))
		fill(want.Elem(), rng)
		msg, err := Append([]byte{}, OpOpen, 7, syscall.ENOMEM, want.Interface())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h, body, err := Split(msg)
		if err != nil || h != (Header{uint32(len(msg)), Version, OpOpen, 7, uint32(syscall.ENOMEM)}) {
			t.Errorf("%s: header %+v, %v", name, h, err)
		}
		got := reflect.New(reflect.TypeOf(m))
		if err := Decode(h.Op, body, got.Interface()); err != nil || !reflect.DeepEqual(got.Elem().Interface(), want.Elem().Interface()) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got.Elem(), want.Elem())
		}
		for _, bad := range [][]byte{append(body[:len(body):len(body)], 0), body[:max(len(body), 1)-1]} {
			if len(bad) == len(body) {
				continue
			}
			if err := Decode(h.Op, bad, got.Interface()); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: a body of %d bytes: %v", name, len(bad), err)
			}
		}
	}
}

func TestSplitRefuses(t *testing.T) {
	msg, _ := Append(nil, OpAllocPD, 1, 0, &Empty{})
	for n := range len(msg) {
		if _, _, err := Split(msg[:n]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d bytes of a message: %v", n, err)
		}
	}
	if _, _, err := Split(append(msg, 0)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a byte too many: %v", err)
	}
	msg[3] = 0xff
	if _, _, err := Split(msg[:HeaderSize]); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a size of 4 GiB: %v", err)
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, body := range []any{"text", struct{ N int }{}, [MaxMessage]byte{}, nil} {
		if dst, err := Append([]byte("kept"), OpOpen, 1, 0, body); err == nil || string(dst) != "kept" {
			t.Errorf("%T: %q, %v", body, dst, err)
		}
	}
}

func TestSentences(t *testing.T) {
	msg := AppendError(nil, OpCreateQP, 9, syscall.EINVAL, "create qp: 0 sends")
	h, body, err := Split(msg)
	if err != nil || h.Errno != uint32(syscall.EINVAL) || h.Tag != 9 || string(body) != "create qp: 0 sends" {
		t.Errorf("%+v, %q, %v", h, body, err)
	}
	_, body, err = Split(AppendError(nil, OpCreateQP, 9, syscall.EINVAL, strings.Repeat("x", 10*MaxSentence)))
	if err != nil || len(body) != MaxSentence {
		t.Errorf("%d bytes of text, %v", len(body), err)
	}
}

func FuzzSplit(f *testing.F) {
	for _, m := range messages {
		msg, _ := Append(nil, OpModifyQP, 3, 0, m)
		f.Add(msg)
	}
	f.Add(AppendError(nil, OpOpen, 1, syscall.EPERM, "no"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		h, body, err := Split(msg)
		if err != nil {
			return
		}
		if int(h.Size) != len(msg) || len(body) != len(msg)-HeaderSize {
			t.Errorf("header says %d of %d bytes", h.Size, len(msg))
		}
		var m ModifyQP
		if Decode(h.Op, body, &m) == nil {
			if a, err := ToQPAttr(&m.Attr); err == nil {
				if FromQPAttr(&a) != m.Attr {
					t.Errorf("%+v became %+v", m.Attr, FromQPAttr(&a))
				}
			}
		}
	})
}
