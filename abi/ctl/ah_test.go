package ctl

import (
	"testing"

	"github.com/softnic/softnicd/ib"
)

func TestAddressVectorKeepsEverything(t *testing.T) {
	want := ib.AHAttr{
		GRH: ib.GlobalRoute{DGID: ib.GID{0xfe, 0x80, 15: 9}, FlowLabel: 0xfffff, SGIDIndex: 3, HopLimit: 64, TrafficClass: 0xc2},
		SL:  5, StaticRate: 7, IsGlobal: true, PortNum: 1,
	}
	var m CreateAH
	m.SetAttr(&want)
	got, err := m.Attr()
	if err != nil || got != want {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

// Who writes messages by hand learns which field was too wide.
func TestWideAddressVectorIsRefused(t *testing.T) {
	for name, m := range map[string]CreateAH{
		"sgid_index": {SGIDIndex: 256}, "hop_limit": {HopLimit: 256}, "traffic_class": {TrafficClass: 256},
		"sl": {SL: 256}, "static_rate": {StaticRate: 256}, "port_num": {Port: 256}, "is_global": {IsGlobal: 2},
	} {
		if _, err := m.Attr(); err == nil {
			t.Errorf("%s: a value that does not fit was taken", name)
		}
	}
}
