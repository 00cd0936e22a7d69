package ctl

// ReregMR changes a registration (ibv_rereg_mr). Which fields of MR count is in Flags: its PD with ReregPD, its rights
// with ReregAccess, everything that says where the memory is with ReregTranslation. Attached is what RegMR would want.
// RegMRReply answers it, with the handle and the keys that the region has from now on.
type ReregMR struct {
	Region uint32 // handle
	Flags  uint32 // ib.ReregFlags
	MR     RegMR
}

// AllocMW makes a memory window, which is bound to nothing.
type AllocMW struct {
	PD   uint32
	Type uint32 // ib.MWType
}

// AllocMWReply has the window's key as it is before the first bind. The low 8 bits are the application's to choose with
// each bind, the others stay.
type AllocMWReply struct {
	Handle uint32
	RKey   uint32
}
