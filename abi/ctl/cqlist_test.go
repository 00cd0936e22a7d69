package ctl

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
)

// The list of completion queues travels as C lays it out, and a page fits in a message.
func TestCQListLayout(t *testing.T) {
	for name, m := range map[string]any{
		"CQPlace": CQPlace{}, "ListCQs": ListCQs{}, "ListCQsReply": ListCQsReply{}, "CQInfo": CQInfo{},
	} {
		size, _ := layout(t, name, reflect.TypeOf(m))
		if got := binary.Size(m); uintptr(got) != size {
			t.Errorf("%s: %d bytes on the socket, %d in C", name, got, size)
		}
		if HeaderSize+int(size) > MaxMessage {
			t.Errorf("%s: %d bytes are more than a message has", name, size)
		}
		want := reflect.New(reflect.TypeOf(m))
		fill(want.Elem(), rand.New(rand.NewPCG(1, 2)))
		msg, err := Append(nil, OpListCQs, 1, 0, want.Interface())
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(m))
		if err := Decode(OpListCQs, msg[HeaderSize:], got.Interface()); err != nil || !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got.Elem(), want.Elem())
		}
	}
}
