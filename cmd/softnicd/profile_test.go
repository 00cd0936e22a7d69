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
	} {
		cfg := config{Profile: strings.Fields(c.flags)}
		p, err := cfg.profileOf(c.device)
		if err != nil || p.Name != c.want || p.ReclaimOnCompletion != (c.want == "rxe") {
			t.Errorf("%q: device %s is %q, %v; want %q", c.flags, c.device, p.Name, err, c.want)
		}
	}
	for _, flags := range []string{"connectx9", "a=", "", "a=b=rxe"} {
		cfg := config{Profile: []string{flags}}
		if _, err := cfg.profileOf("a"); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "softnic or rxe") {
			t.Errorf("%q: %v", flags, err)
		}
	}
}
