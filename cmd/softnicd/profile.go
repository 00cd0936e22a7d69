package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// profileNames lists the profiles for people.
func profileNames() string {
	var names []string
	for _, p := range nic.Profiles() {
		names = append(names, p.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
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

// pkeys reads the P_Key table, which must have room for what is to be in it.
func (c *config) pkeys(p *nic.Profile) ([]ib.PKey, error) {
	var keys []ib.PKey
	for _, s := range c.PKey {
		k, err := strconv.ParseUint(s, 0, 16)
		if err != nil || k&0x7fff == 0 {
			return nil, usage(fmt.Errorf("pkey %q: a number of 16 bits expected whose lower 15 name a partition, as 0xffff", s))
		}
		keys = append(keys, ib.PKey(k))
	}
	// Who asks for several has them, whatever the device has that the profile resembles.
	p.Limits.PKeyTableLen = max(p.Limits.PKeyTableLen, uint32(len(keys)))
	return keys, nil
}

func profileNamed(name string) (nic.Profile, error) {
	for _, p := range nic.Profiles() {
		if p.Name == name {
			return p, nil
		}
	}
	return nic.Profile{}, usage(fmt.Errorf("no profile is named %q: %s", name, profileNames()))
}
