package nic

// RXE is how Linux rxe presents itself, where softnicd can do the same: its limits on completion queues, inline data and
// messages, and its rule for slots. Who tests against a kernel that has rxe finds sizing mistakes here that other devices
// forgive.
func RXE() Profile {
	p := Softnic()
	p.Name = "rxe"
	p.Limits.MaxCQE = 1<<15 - 1
	p.Limits.MaxInlineData = 400
	p.Limits.MaxMessage = 8 << 20
	p.Limits.NumCompVectors = 1
	p.ReclaimOnCompletion = true
	return p
}

// Profiles returns the profiles that there are, the default one first.
func Profiles() []Profile { return []Profile{Softnic(), RXE()} }

// Profile returns how the device presents itself.
func (d *Device) Profile() Profile { return d.profile }
