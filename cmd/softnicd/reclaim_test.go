package main

import "testing"

// --reclaim beats the profile, both ways.
func TestReclaimAndProfile(t *testing.T) {
	for _, c := range []struct {
		profile      []string
		reclaim      reclaim
		onCompletion bool
	}{
		{nil, "", false},
		{nil, reclaimCompletion, true},
		{[]string{"rxe"}, "", true},
		{[]string{"rxe"}, reclaimPoll, false},
		{[]string{"other=rxe"}, reclaimCompletion, true},
	} {
		p, err := (&config{Profile: c.profile, Reclaim: c.reclaim}).profileOf("softnic0")
		if err != nil || p.ReclaimOnCompletion != c.onCompletion {
			t.Errorf("profile %v, reclaim %q: on completion %v, %v", c.profile, c.reclaim, p.ReclaimOnCompletion, err)
		}
	}
}
