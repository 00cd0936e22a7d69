package batch

import (
	"log/slog"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

const warnEvery = time.Minute

// Losses counts frames that the network refused, and tells so once a minute.
type Losses struct {
	Counters *nic.PortCounters
	Log      *slog.Logger
	last     clock.Time
	warned   bool
}

// Lose counts n frames. To the transport they are lost like any others.
func (l *Losses) Lose(now clock.Time, path *wire.Path, n int, why error) {
	l.Counters.SendErrors.Add(uint64(n))
	if l.warned && now.Sub(l.last) < warnEvery {
		return
	}
	l.warned, l.last = true, now
	l.Log.Warn("the network refuses frames; they count as lost", "source", path.Source.Addr(),
		"destination", path.Dest.Addr(), "err", why, "so_far", l.Counters.SendErrors.Load())
}
