package live

import (
	"time"

	"github.com/softnic/softnicd/ib"
)

// side is one end of a connection: a queue pair and memory, of which parts are named by offset.
type side interface {
	// make makes a queue pair in place of the last, with a shared receive queue if that is asked for.
	make(kind string, shared bool) (endpoint, error)
	connect(peer endpoint, a attr) error

	fill(at, n int, seed string) error // by bytes that the seed gives
	clear(at, n int) error
	sum(at, n int) (string, error) // SHA-256
	word(at int) (uint64, error)
	setWord(at int, v uint64) error

	recv(n, at, length int, later time.Duration) error
	post(w work) error
	// poll waits for n completions; fewer came if it returns fewer.
	poll(n int, wait time.Duration) ([]completion, error)
	bind(at, n int) (ib.RKey, error) // binds a new window of type 2
	unbind() error
}

// endpoint is what a side tells of its queue pair.
type endpoint struct {
	QPN  ib.QPN  `json:"qpn"`
	GID  string  `json:"gid"`
	RKey ib.RKey `json:"rkey"`
	Addr uint64  `json:"addr"`
}

// attr is what both sides of a connection agree on.
type attr struct {
	mtu          int
	sqPSN, rqPSN ib.PSN
	timeout      uint8
	retry        uint8
	rnrRetry     uint8
	rnrTimer     uint8
}

// work is a send request.
type work struct {
	Op     string  `json:"op_name"` // as C spells it, without IBV_WR_
	At     int     `json:"at"`
	Length int     `json:"length"`
	Remote uint64  `json:"remote"`
	RKey   ib.RKey `json:"rkey"`
	Imm    uint32  `json:"imm"` // immediate, or key to invalidate
	Add    uint64  `json:"add"` // or what to compare with
	Swap   uint64  `json:"swap"`
	WRID   uint64  `json:"wr_id"`
}

type completion struct {
	WRID   uint64      `json:"wr_id"`
	Status ib.WCStatus `json:"status"`
	Bytes  int         `json:"bytes"`
	Imm    uint32      `json:"imm"`
	Source ib.QPN      `json:"source"`
}

const (
	// memory is the bytes of a side: the first half is where it asks from, the second where it is asked for.
	memory = 18 << 20
	target = memory / 2

	qkey = ib.QKey(0x11111111)
)
