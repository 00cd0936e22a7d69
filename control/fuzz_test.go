package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/nic"
)

// requestSizes are the bytes of the requests, so that the fuzzer's bytes get past the first check.
var requestSizes = map[ctl.Op]int{
	ctl.OpOpen: binary.Size(ctl.Open{}), ctl.OpQueryPort: binary.Size(ctl.QueryPort{}), ctl.OpQueryGID: binary.Size(ctl.QueryGID{}),
	ctl.OpQueryPKey: binary.Size(ctl.QueryPKey{}), ctl.OpAddArena: binary.Size(ctl.AddArena{}),
	ctl.OpRemoveArena: handleSize, ctl.OpDeallocPD: handleSize, ctl.OpDeregMR: handleSize, ctl.OpDestroyChannel: handleSize,
	ctl.OpDestroyCQ: handleSize, ctl.OpQueryQP: handleSize, ctl.OpDestroyQP: handleSize,
	ctl.OpRegMRParts: binary.Size(ctl.RegMRParts{}),
	ctl.OpRegMR:      binary.Size(ctl.RegMR{}), ctl.OpCreateCQ: binary.Size(ctl.CreateCQ{}), ctl.OpCreateQP: binary.Size(ctl.CreateQP{}),
	ctl.OpModifyQP: binary.Size(ctl.ModifyQP{}), ctl.OpQueryCounters: binary.Size(ctl.QueryCounters{}),
	ctl.OpResizeCQ: binary.Size(ctl.ResizeCQ{}), ctl.OpModifyCQ: binary.Size(ctl.ModifyCQ{}),
	ctl.OpReregMR: binary.Size(ctl.ReregMR{}), ctl.OpAllocMW: binary.Size(ctl.AllocMW{}), ctl.OpDeallocMW: handleSize,
	ctl.OpCreateSRQ: binary.Size(ctl.CreateSRQ{}), ctl.OpModifySRQ: binary.Size(ctl.ModifySRQ{}), ctl.OpQuerySRQ: handleSize,
	ctl.OpDestroySRQ: handleSize, ctl.OpQueryQPCounters: binary.Size(ctl.QueryQPCounters{}), ctl.OpListCQs: binary.Size(ctl.ListCQs{}),
	ctl.OpCreateAH: binary.Size(ctl.CreateAH{}), ctl.OpDestroyAH: handleSize, ctl.OpListDevices: binary.Size(ctl.ListDevices{}),
	ctl.OpOpenXRCD: binary.Size(ctl.OpenXRCD{}), ctl.OpCloseXRCD: handleSize, ctl.OpCreateXSRQ: binary.Size(ctl.CreateXSRQ{}),
	ctl.OpCreateTarget: binary.Size(ctl.CreateTarget{}), ctl.OpOpenTarget: binary.Size(ctl.OpenTarget{}),
	ctl.OpAttachMcast: binary.Size(ctl.AttachMcast{}), ctl.OpDetachMcast: binary.Size(ctl.AttachMcast{}),
	ctl.OpStatus: binary.Size(ctl.Status{}), ctl.OpDeviceCounters: binary.Size(ctl.DeviceCounters{}), ctl.OpEvents: binary.Size(ctl.Events{}),
}

var handleSize = binary.Size(ctl.Handle{})

// FuzzHandle plays any conversation: each request is an operation, a count of attachments, and a body. Whatever it is, it
// is answered, nothing panics, and when the session is closed nothing is left.
func FuzzHandle(f *testing.F) {
	d, err := nic.New(nic.Config{Name: "softnic0", Port: local.New(64), Manual: true, Page: make([]byte, abi.DevicePageSize),
		Link: nic.Link{Name: "test0", Index: 1, MTU: 1500, Up: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}})
	noError(f, err)
	f.Cleanup(func() { d.Close() })
	srv, err := New(Config{Devices: []*Device{{NIC: d, Page: NewPrivatePage()}}})
	noError(f, err)
	// Arena, PD, channel, CQ of 1 entry at 0 with the channel, QP at 64 KiB, region at 8 KiB, and all of them destroyed.
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
		}
		return b
	}
	request := func(op ctl.Op, attach byte, body []byte) []byte {
		b := append([]byte{byte(op), attach}, body...)
		return append(b, make([]byte, requestSizes[op]-len(body))...)
	}
	var all, made []byte
	for _, r := range [][]byte{
		request(ctl.OpAddArena, 1, u32(1<<17, 0)),
		request(ctl.OpAllocPD, 0, nil),
		request(ctl.OpCreateChannel, 0, nil),
		request(ctl.OpCreateCQ, 0, u32(1, 0, 1, 1)),
		request(ctl.OpCreateQP, 0, u32(1, 2, 1, 1, 0, 0, 4, 4, 1, 1, 0, 1, 65536, 0)),
		request(ctl.OpRegMR, 0, u32(1, 0, 1, 1, 8192, 0, 0, 0, 4096, 0)),
		request(ctl.OpModifyQP, 0, u32(1, 1|16|32|8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
		request(ctl.OpDestroyQP, 0, u32(1)),
		request(ctl.OpDeregMR, 0, u32(1)),
		request(ctl.OpDestroyCQ, 0, u32(1)),
		request(ctl.OpDestroyChannel, 0, u32(1)),
		request(ctl.OpDeallocPD, 0, u32(1)),
		request(ctl.OpRemoveArena, 0, u32(1)),
	} {
		f.Add(r)
		all = append(all, r...)
		if ctl.Op(r[0]) == ctl.OpModifyQP {
			made = slices.Clone(all)
		}
	}
	f.Add(all)
	// Every operation there is, on the first object of its kind.
	var ops []ctl.Op
	for op := range operations {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	for _, op := range ops {
		if requestSizes[op] >= 4 {
			f.Add(append(made[:len(made):len(made)], request(op, 0, u32(1))...))
		}
	}
	memory := make([]byte, 1<<17)
	f.Fuzz(func(t *testing.T, script []byte) {
		s, err := srv.NewSession()
		noError(t, err)
		defer s.Close()
		play := func(op ctl.Op, attach int, body []byte) ctl.Header {
			msg := ctl.AppendError(nil, op, 7, 0, "")
			msg = append(msg, body...)
			msg[0], msg[1] = byte(len(msg)), byte(len(msg)>>8)
			var in []ctl.Attachment
			for range attach {
				in = append(in, ctl.Attachment{FD: -1, Memory: memory})
			}
			reply, out := s.Handle(msg, in)
			for _, a := range out {
				if a.FD >= 0 {
					unix.Close(a.FD)
				}
			}
			h, _, err := ctl.Split(reply)
			if err != nil || h.Tag != 7 || h.Op != op || h.Errno != 0 && len(out) > 0 {
				t.Fatalf("answer %+v, %v", h, err)
			}
			return h
		}
		open := make([]byte, requestSizes[ctl.OpOpen])
		open[ctl.NameSize] = abi.Version
		if h := play(ctl.OpOpen, 1, open); h.Errno != 0 {
			t.Fatalf("open: %v", unix.Errno(h.Errno))
		}
		for range 64 {
			if len(script) < 2 {
				break
			}
			op, attach := ctl.Op(script[0]), int(script[1]%6)
			n := min(requestSizes[op], len(script)-2)
			play(op, attach, script[2:2+n])
			script = script[2+n:]
		}
	})
}

// An operation whose size the fuzzer does not know would never get past the first check.
func TestFuzzKnowsEveryOperation(t *testing.T) {
	for op, o := range operations {
		_, _, err := o.run(nil, op, make([]byte, requestSizes[op]+1), nil)
		var refusal *ctl.Error
		if !errors.As(err, &refusal) {
			t.Errorf("%s: a body of %d bytes was taken: requestSizes has the wrong size", o.name, requestSizes[op]+1)
			continue
		}
		if want := fmt.Sprintf("%d expected", requestSizes[op]); !strings.Contains(refusal.Sentence, want) {
			t.Errorf("%s: requestSizes says %d, but: %v", o.name, requestSizes[op], err)
		}
	}
}
