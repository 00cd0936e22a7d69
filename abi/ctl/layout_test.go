package ctl

import (
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"testing"
)

// messages are all structs that travel; TestMessagesAreAll holds the list to the source.
var messages = map[string]any{
	"Header": Header{}, "Empty": Empty{}, "ListDevices": ListDevices{}, "ListDevicesReply": ListDevicesReply{}, "Open": Open{},
	"OpenReply": OpenReply{}, "QueryDeviceReply": QueryDeviceReply{}, "QueryPort": QueryPort{}, "QueryPortReply": QueryPortReply{},
	"QueryGID": QueryGID{}, "QueryGIDReply": QueryGIDReply{}, "QueryPKey": QueryPKey{}, "QueryPKeyReply": QueryPKeyReply{},
	"AddArena": AddArena{}, "HandleReply": HandleReply{}, "Handle": Handle{}, "RegMR": RegMR{}, "RegMRReply": RegMRReply{},
	"CreateChannel": CreateChannel{}, "ChannelEvent": ChannelEvent{}, "AsyncEvent": AsyncEvent{}, "CreateCQ": CreateCQ{},
	"CreateCQReply": CreateCQReply{}, "ResizeCQ": ResizeCQ{}, "ResizeCQReply": ResizeCQReply{},
	"ModifyCQ": ModifyCQ{}, "CreateQP": CreateQP{},
	"CreateQPReply": CreateQPReply{}, "QPAttr": QPAttr{}, "ModifyQP": ModifyQP{}, "QueryQPReply": QueryQPReply{},
	"QueryCounters": QueryCounters{}, "QueryCountersReply": QueryCountersReply{},
	"CreateSRQ": CreateSRQ{}, "CreateSRQReply": CreateSRQReply{}, "ModifySRQ": ModifySRQ{}, "QuerySRQReply": QuerySRQReply{},
	"QueryQPCounters": QueryQPCounters{}, "CreateAH": CreateAH{},
	"AttachMcast": AttachMcast{}, "OpenXRCD": OpenXRCD{}, "CreateXSRQ": CreateXSRQ{}, "CreateXSRQReply": CreateXSRQReply{}, "CreateTarget": CreateTarget{},
	"OpenTarget": OpenTarget{},
	"ReregMR":    ReregMR{}, "AllocMW": AllocMW{}, "AllocMWReply": AllocMWReply{},
	"MemoryPart": MemoryPart{}, "RegMRParts": RegMRParts{},
}

func TestMessagesAreAll(t *testing.T) {
	fset := token.NewFileSet()
	found := map[string]bool{"Header": true}
	for _, name := range []string{"messages.go", "windows.go", "srq.go", "counters.go", "ah.go", "xrc.go", "mcast.go", "parts.go"} {
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if ts, ok := n.(*ast.TypeSpec); ok {
				if _, ok := ts.Type.(*ast.StructType); ok {
					found[ts.Name.Name] = true
				}
			}
			return true
		})
	}
	for name := range found {
		if messages[name] == nil {
			t.Errorf("%s is not in the list of this test", name)
		}
	}
	for name := range messages {
		if !found[name] {
			t.Errorf("%s is no message any more", name)
		}
	}
}

// A C compiler aligns a field to its size and a struct to its widest field. Where that leaves no gap, the bytes on the
// socket are the struct of the generated header.
func TestNoHiddenPadding(t *testing.T) {
	for name, m := range messages {
		typ := reflect.TypeOf(m)
		size, _ := layout(t, name, typ)
		if got := binary.Size(m); uintptr(got) != size {
			t.Errorf("%s: %d bytes on the socket, %d in C", name, got, size)
		}
		if HeaderSize+int(size) > MaxMessage {
			t.Errorf("%s: %d bytes are more than a message has", name, size)
		}
	}
	for what, c := range map[string][2]int{
		"Header": {HeaderSize, binary.Size(Header{})}, "ChannelEvent": {ChannelEventSize, binary.Size(ChannelEvent{})},
		"AsyncEvent": {AsyncEventSize, binary.Size(AsyncEvent{})},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d bytes, its constant says %d", what, c[1], c[0])
		}
	}
}

func layout(t *testing.T, name string, typ reflect.Type) (size, align uintptr) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return typ.Size(), typ.Size()
	case reflect.Array:
		size, align = layout(t, name, typ.Elem())
		return size * uintptr(typ.Len()), align
	case reflect.Struct:
		align = 1
		for i := range typ.NumField() {
			f := typ.Field(i)
			fs, fa := layout(t, name+"."+f.Name, f.Type)
			if size%fa != 0 {
				t.Errorf("%s.%s at %d needs padding to %d", name, f.Name, size, fa)
			}
			size += fs
			align = max(align, fa)
		}
		if size%align != 0 {
			t.Errorf("%s: %d bytes need padding to %d", name, size, align)
		}
		return size, align
	}
	t.Errorf("%s: kind %v has no fixed layout", name, typ.Kind())
	return 0, 1
}
