package main

import (
	"fmt"
	"strings"

	"github.com/softnic/softnicd/nic"
)

// profileNames lists the profiles for people.
func profileNames() string {
	var names []string
	for _, p := range nic.Profiles() {
		names = append(names, p.Name)
	}
	return strings.Join(names, " or ")
}

// profileOf returns the profile of a device: the last one that was named for it, else the last one for all.
// With the rule for slots that --reclaim names.
func (c *config) profileOf(device string) (*nic.Profile, error) {
	p, own := nic.Softnic(), false
	for _, s := range c.Profile {
		whose, name, one := strings.Cut(s, "=")
		if !one {
			whose, name = "", s
		}
		named, err := profileNamed(name)
		if err != nil {
			return nil, err
		}
		if one && whose == device || !one && !own {
			p, own = named, one
		}
	}
	if c.Reclaim != "" {
		p.ReclaimOnCompletion = c.Reclaim == reclaimCompletion
	}
	return &p, nil
}

func profileNamed(name string) (nic.Profile, error) {
	for _, p := range nic.Profiles() {
		if p.Name == name {
			return p, nil
		}
	}
	return nic.Profile{}, usage(fmt.Errorf("no profile is named %q: %s", name, profileNames()))
}
