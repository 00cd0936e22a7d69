package ib

// MWType is the type of a memory window. Values as ibv_mw_type.
type MWType uint8

// Types of window. Type 2 is 2B here: a bound window belongs to the queue pair that bound it (IBA 10.6.7.2).
const (
	MWType1 MWType = 1 // bound by the verb bind, used by every queue pair of its protection domain
	MWType2 MWType = 2 // bound by a work request under a key that the application chose, and invalidated
)

// String returns "type 1" or "type 2".
func (t MWType) String() string {
	switch t {
	case MWType1:
		return "type 1"
	case MWType2:
		return "type 2"
	}
	return number("MWType", t)
}

// KeyVariant is the part of an R_Key that belongs to the application; the rest names the window.
const KeyVariant RKey = 0xff

// Inc returns the key with the next variant, as ibv_inc_rkey does: who binds a window again under it shuts out those who
// kept the old one.
func (k RKey) Inc() RKey { return k.Variant(k + 1) }

// Variant returns the key with the variant of v.
func (k RKey) Variant(v RKey) RKey { return k&^KeyVariant | v&KeyVariant }

// FlushPlacement says what a FLUSH asks for. Values as ibv_placement_type.
type FlushPlacement uint8

// Placement types.
const (
	FlushGlobal     FlushPlacement = 1 << 0 // what was written is visible to everybody on the peer's host
	FlushPersistent FlushPlacement = 1 << 1 // what was written survives the loss of power
)

// FlushLevel says how much a FLUSH covers. Values as ibv_selectivity_level.
type FlushLevel uint8

// Selectivity levels.
const (
	FlushRange  FlushLevel = 0 // the range that the request names
	FlushRegion FlushLevel = 1 // the whole region of the key
)

// ReregFlags say what of a memory region changes. Values as ibv_rereg_mr_flags.
type ReregFlags uint8

// What changes.
const (
	ReregTranslation ReregFlags = 1 << 0 // where the memory is
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

// String joins the names of the flags: "TRANSLATION|ACCESS".
func (f ReregFlags) String() string { return join(f, reregNames) }

var reregNames = []bitName[ReregFlags]{{ReregTranslation, "TRANSLATION"}, {ReregPD, "PD"}, {ReregAccess, "ACCESS"}}
