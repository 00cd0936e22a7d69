package main

import (
	"strings"
	"testing"
)

func TestProfileOf(t *testing.T) {
	for _, c := range []struct{ flags, device, want string }{
		{"", "a", "softnic"},
		{"rxe", "a", "rxe"},
		{"rxe softnic", "a", "softnic"},
		{"a=rxe", "a", "rxe"},
		{"a=rxe", "b", "softnic"},
		{"a=softnic rxe", "a", "softnic"},
		{"rxe a=softnic", "a", "softnic"},
		{"rxe a=softnic", "b", "rxe"},
		{"connectx", "a", "connectx"},
		{"a=irdma rxe", "a", "irdma"},
	} {
		cfg := config{Profile: strings.Fields(c.flags)}
		p, err := cfg.profileOf(c.device)
		if err != nil || p.Name != c.want || p.ReclaimOnCompletion != (c.want == "rxe") {
			t.Errorf("%q: device %s is %q, %v; want %q", c.flags, c.device, p.Name, err, c.want)
		}
	}
	for _, flags := range []string{"connectx9", "a=", "", "a=b=rxe"} {
		cfg := config{Profile: []string{flags}}
		if _, err := cfg.profileOf("a"); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "softnic, rxe, connectx or irdma") {
			t.Errorf("%q: %v", flags, err)
		}
	}
}

func TestPKeys(t *testing.T) {
	for _, c := range []struct {
		flags string
		room  uint32
		ok    bool
	}{{"", 1, true}, {"0xffff", 1, true}, {"0xffff 0x8001 33", 3, true}, {"0", 0, false}, {"0x8000", 0, false}, {"0x10000", 0, false}, {"x", 0, false}} {
		cfg := config{PKey: strings.Fields(c.flags)}
		p, err := cfg.profileOf("a")
		check(t, err)
		keys, err := cfg.pkeys(p)
		if (err == nil) != c.ok || c.ok && (len(keys) != len(cfg.PKey) || p.Limits.PKeyTableLen != c.room) {
			t.Errorf("%q: %v of %d, %v", c.flags, keys, p.Limits.PKeyTableLen, err)
		}
		if !c.ok && exitCode(err) != exitUsage {
			t.Errorf("%q: %v", c.flags, err)
		}
	}
}
