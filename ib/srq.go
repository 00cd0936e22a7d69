package ib

// SRQAttr are the attributes of a shared receive queue; the names are those of ibv_srq_attr.
type SRQAttr struct {
	MaxWR    uint32 // receives that can be posted and not taken
	MaxSGE   uint32
	SRQLimit uint32 // see SRQAttrLimit; 0 when it is not armed
}

// SRQAttrMask says which fields of a [SRQAttr] count. Values as ibv_srq_attr_mask.
type SRQAttrMask uint32

// The attributes of a shared receive queue that can be changed. SRQAttrLimit arms EventSRQLimitReached, once: it is
// raised when fewer receives than SRQLimit are posted, at once if that is so already.
const (
	SRQAttrMaxWR SRQAttrMask = 1 << 0
	SRQAttrLimit SRQAttrMask = 1 << 1
)

// String joins the names of the attributes: "MAX_WR|LIMIT".
func (m SRQAttrMask) String() string { return join(m, srqAttrNames) }

var srqAttrNames = []bitName[SRQAttrMask]{{SRQAttrMaxWR, "MAX_WR"}, {SRQAttrLimit, "LIMIT"}}
