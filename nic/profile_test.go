package nic

import (
	"encoding/csv"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// facts are a device's values by the names of device_limits.csv. What is missing has no number there, or none here.
func facts(d *ib.DeviceAttr, p *ib.PortAttr) map[string]uint64 {
	return map[string]uint64{
		"vendor_id": uint64(d.VendorID), "max_mr_size": d.MaxMRSize, "page_size_cap": d.PageSizeCap, "max_qp": uint64(d.MaxQP),
		"max_qp_wr": uint64(d.MaxQPWR), "max_sge": uint64(d.MaxSGE), "max_sge_rd": uint64(d.MaxSGERD),
		"max_inline_data (per QP)": uint64(d.MaxInlineData), "max_cq": uint64(d.MaxCQ), "max_cqe": uint64(d.MaxCQE),
		"max_mr": uint64(d.MaxMR), "max_pd": uint64(d.MaxPD), "max_qp_rd_atom": uint64(d.MaxQPRDAtom),
		"max_qp_init_rd_atom": uint64(d.MaxQPInitRDAtom), "max_srq": uint64(d.MaxSRQ), "max_srq_wr": uint64(d.MaxSRQWR),
		"max_srq_sge": uint64(d.MaxSRQSGE), "max_pkeys": uint64(d.MaxPKeys), "local_ca_ack_delay": uint64(d.LocalCAAckDelay),
		"phys_port_cnt": uint64(d.PhysPortCnt), "max_msg_sz": uint64(p.MaxMsgSz), "gid_tbl_len": uint64(p.GIDTblLen),
		"pkey_tbl_len": uint64(p.PKeyTblLen),
	}
}

var number = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// A profile has the device's value, or softnicd's own bound if that is less: it never promises more than the device does.
func TestProfilesKeepToTheirDevices(t *testing.T) {
	f, err := os.Open("testdata/device_limits.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	attributes := func(p Profile) map[string]uint64 {
		a := newHost(t, p.Name, "10.0.0.1", newCable(4), func(c *Config) { c.Profile, c.Limits = &p, Limits{} })
		d, port := a.dev.Attr(), a.dev.PortAttr()
		return facts(&d, &port)
	}
	own := attributes(Softnic())
	// These are what they are, not limits; others differ for the reason behind them.
	identity := map[string]bool{"vendor_id": true, "page_size_cap": true, "local_ca_ack_delay": true, "max_pkeys": true}
	apart := map[string]uint64{"rxe max_inline_data (per QP)": 400} // the older value, which old kernels keep to
	judged := 0
	for column, p := range map[int]Profile{1: RXE(), 2: ConnectX()} {
		have := attributes(p)
		for _, row := range rows[1:] {
			got, known := have[row[0]]
			if !known || number.FindString(row[column]) == "" || strings.Contains(row[column], "provider") {
				continue
			}
			want, err := strconv.ParseUint(number.FindString(row[column]), 0, 64)
			if row[0] == "gid_tbl_len" && p.Name == "connectx" {
				want = 256 // 255/256
			}
			if err != nil {
				t.Fatal(row, err)
			}
			if !identity[row[0]] && row[0] != "pkey_tbl_len" {
				want = min(want, own[row[0]])
			}
			if v, ok := apart[p.Name+" "+row[0]]; ok {
				want = v
			}
			judged++
			if got != want {
				t.Errorf("%s: %s is %d, want %d", p.Name, row[0], got, want)
			}
		}
	}
	if judged < 40 {
		t.Errorf("%d rows judged", judged)
	}
	d := newHost(t, "i", "10.0.0.1", newCable(4), func(c *Config) { p := IRDMA(); c.Profile, c.Limits = &p, Limits{} }).dev
	if a := d.Attr(); a.VendorID != 0x8086 || a.MaxSGE != 13 || a.MaxQPWR != 4063 || d.PortAttr().GIDTblLen != 32 {
		t.Errorf("%+v", a)
	}
	// The kernel's irdma: SZ_4K | SZ_2M | SZ_1G, IB_PORT_CM_SUP | IB_PORT_REINIT_SUP and GIDs of IP addresses, one P_Key.
	if a, port := d.Attr(), d.PortAttr(); a.PageSizeCap != 0x40201000 || port.PortCapFlags != 1<<16|1<<18|1<<26 || port.PKeyTblLen != 1 ||
		a.MaxCQE != 1048574 || a.MaxInlineData != 101 || port.MaxMsgSz != 1<<31-1 || a.MaxQPRDAtom != 127 {
		t.Errorf("%+v %+v", a, port)
	}
	// rxe and irdma have a completion vector for each processor, as softnicd has.
	for _, p := range Profiles() {
		if p.Limits.NumCompVectors != DefaultLimits().NumCompVectors {
			t.Errorf("%s has %d completion vectors", p.Name, p.Limits.NumCompVectors)
		}
	}
}
