package ctl

import (
	"encoding/binary"
	"reflect"
	"testing"
)

// The messages about the daemon as a whole have one layout on the socket and in C, fit, and survive the way.
func TestStatusMessages(t *testing.T) {
	for name, m := range map[string]any{
		"Status": Status{}, "DeviceStatus": DeviceStatus{}, "StatusReply": StatusReply{}, "DeviceCounters": DeviceCounters{},
		"SubscribeReply": SubscribeReply{}, "Event": Event{}, "Events": Events{}, "EventsReply": EventsReply{},
	} {
		size, _ := layout(t, name, reflect.TypeOf(m))
		if n := binary.Size(m); uintptr(n) != size || HeaderSize+n > MaxMessage {
			t.Errorf("%s: %d bytes on the socket, %d in C", name, n, size)
		}
		want := reflect.New(reflect.TypeOf(m))
		raw := make([]byte, binary.Size(m))
		for i := range raw {
			raw[i] = byte(i*7 + 1)
		}
		if _, err := binary.Decode(raw, binary.LittleEndian, want.Interface()); err != nil {
			t.Fatal(name, err)
		}
		msg, err := Append(nil, OpStatus, 1, 0, want.Interface())
		if err != nil {
			t.Fatal(name, err)
		}
		got := reflect.New(reflect.TypeOf(m))
		if err := Decode(OpStatus, msg[HeaderSize:], got.Interface()); err != nil || !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
