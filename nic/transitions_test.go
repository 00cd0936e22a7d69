package nic

import (
	"encoding/csv"
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
)

var csvTypes = map[string]ib.QPType{
	"UD": ib.QPTypeUD, "UC": ib.QPTypeUC, "RC": ib.QPTypeRC, "XRC_INI": ib.QPTypeXRCSend, "XRC_TGT": ib.QPTypeXRCRecv,
	"GSI": ib.QPTypeGSI, "SMI": ib.QPTypeSMI, "RAW_PACKET": ib.QPTypeRawPacket,
}

// Every row of the table: what it demands suffices, each part of it is needed, what it allows may be given, and nothing
// else may.
func TestTransitions(t *testing.T) {
	f, err := os.Open("testdata/qp_transitions.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 7*7*8; len(rows) != want {
		t.Fatalf("%d rows, want %d: every pair of states for every type", len(rows), want)
	}
	for i, row := range rows[1:] {
		from, to := stateNamed(t, row[0]), stateNamed(t, row[1])
		typ, ok := csvTypes[row[2]]
		if !ok {
			t.Fatalf("row %d: type %s", i+2, row[2])
		}
		check := func(mask ib.QPAttrMask) error { return checkTransition(typ, from, to, mask) }
		name := row[2] + " " + row[0] + " to " + row[1]
		if row[3] == "0" {
			for _, mask := range []ib.QPAttrMask{0, ib.QPAttrState, 1<<26 - 1} {
				if err := check(mask); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%s with %#x: %v, want EINVAL", name, mask, err)
				}
			}
			continue
		}
		required, optional := maskOf(t, row[6]), maskOf(t, row[7])
		if err := check(required); err != nil {
			t.Errorf("%s with what is required: %v", name, err)
		}
		if err := check(required | optional | ib.QPAttrState); err != nil {
			t.Errorf("%s with all that is allowed: %v", name, err)
		}
		for bit := ib.QPAttrMask(1); bit != 0; bit <<= 1 {
			switch {
			case required&bit != 0:
				if err := check(required &^ bit); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%s without %s: %v, want EINVAL", name, bit, err)
				}
			case (optional|ib.QPAttrState)&bit != 0:
				if err := check(required | bit); err != nil {
					t.Errorf("%s with %s: %v", name, bit, err)
				}
			default:
				if err := check(required | bit); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%s with %s: %v, want EINVAL", name, bit, err)
				}
			}
		}
	}
}

func TestTransitionErrorsAreSentences(t *testing.T) {
	for _, tt := range []struct {
		cur, next ib.QPState
		mask      ib.QPAttrMask
		want      string
	}{
		{ib.StateInit, ib.StateRTS, ib.QPAttrState, "RTS from INIT: invalid transition: invalid argument"},
		{ib.StateReset, ib.StateInit, ib.QPAttrState | ib.QPAttrPort,
			"INIT from RESET: attributes ACCESS_FLAGS|PKEY_INDEX are missing: invalid argument"},
		{ib.StateRTS, ib.StateRTS, ib.QPAttrCap | 1<<30,
			"RTS from RTS: attributes CAP|0x40000000 cannot be given: invalid argument"},
	} {
		if err := checkTransition(ib.QPTypeRC, tt.cur, tt.next, tt.mask); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

func stateNamed(t *testing.T, name string) ib.QPState {
	for s := ib.StateReset; s < ib.StateUnknown; s++ {
		if s.String() == name {
			return s
		}
	}
	t.Fatalf("state %s", name)
	return 0
}

func maskOf(t *testing.T, s string) ib.QPAttrMask {
	v, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		t.Fatal(err)
	}
	return ib.QPAttrMask(v)
}
