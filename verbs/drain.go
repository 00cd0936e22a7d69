package verbs

import (
	"context"
	"errors"
	"time"

	"github.com/softnic/softnicd/ib"
)

// Drain takes the queue pair to the error state and returns when the completion of everything that was posted on it was
// polled, flushed or not (ib_drain_qp). It does so by a work request of its own at the end of each queue, whose completion
// nobody sees. Nothing may be posted behind it meanwhile. Receives that a queue pair took from a shared receive queue are
// not waited for: QP_LAST_WQE_REACHED tells of those.
//
// With a handle function Drain polls the queue pair's completion queues itself and calls it for every completion there,
// those of other queue pairs included. Without one it waits for other goroutines to poll. It ends early with the error of
// ctx, or ErrClosed, ErrDeviceFatal or ErrCQOverrun.
func (q *QP) Drain(ctx context.Context, handle func(*WC)) error {
	if q.State() == ib.StateReset {
		return nil // nothing can have been posted
	}
	if err := q.Modify(&QPAttr{State: ib.StateErr}, ib.QPAttrState); err != nil {
		return err
	}
	var ends []*marker
	if q.init.Cap.MaxSendWR > 0 {
		ends = append(ends, newMarker(&q.send, q.init.SendCQ, q.putSendMarker))
	}
	if q.init.Cap.MaxRecvWR > 0 && q.init.SRQ == nil {
		ends = append(ends, newMarker(&q.recv, q.init.RecvCQ, q.putRecvMarker))
	}
	defer func() {
		for _, m := range ends {
			m.queue.marker.CompareAndSwap(m, nil)
		}
	}()
	for _, m := range ends {
		if err := q.reach(ctx, m, handle); err != nil {
			return err
		}
	}
	return nil
}

// marker is the work request at the end of a queue that is drained.
type marker struct {
	queue *workQueue
	cq    *CQ
	put   func(*marker) error
	index uint32        // its count in the queue
	taken chan struct{} // closed when its completion was polled
}

func newMarker(w *workQueue, cq *CQ, put func(*marker) error) *marker {
	return &marker{queue: w, cq: cq, put: put, taken: make(chan struct{})}
}

// isMarker reports whether the request that an error completion is about was put there by Drain, which hears of it.
func (w *workQueue) isMarker(index uint32) bool {
	m := w.marker.Load()
	if m == nil || m.index != index || !w.marker.CompareAndSwap(m, nil) {
		return false
	}
	close(m.taken)
	return true
}

// drainPause is how long Drain waits before it looks again, for completions or for room in a queue.
const drainPause = 100 * time.Microsecond

// reach waits until m was posted and its completion was polled.
func (q *QP) reach(ctx context.Context, m *marker, handle func(*WC)) error {
	posted := false
	pause := time.NewTimer(drainPause)
	defer pause.Stop()
	var wc [16]WC
	for {
		if !posted {
			// The queue may be full until somebody polls what was flushed.
			err := m.put(m)
			if posted = err == nil; !posted && !errors.Is(err, errQueueFull) {
				return err
			}
		}
		n := 0
		if handle != nil {
			var err error
			if n, err = m.cq.Poll(wc[:]); err != nil {
				return err
			}
			for i := range n {
				handle(&wc[i])
			}
		}
		select {
		case <-m.taken:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if n > 0 {
			continue
		}
		if err := q.drains(m.cq); err != nil {
			return err
		}
		pause.Reset(drainPause)
		select {
		case <-m.taken:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// drains says why completions will not come any more.
func (q *QP) drains(cq *CQ) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case q.closed.Load(), cq.closed.Load():
		return ErrClosed
	case q.ctx.lost():
		return ErrDeviceFatal
	case cq.reader.Dead():
		return ErrCQOverrun
	}
	return nil
}

// putSendMarker posts a marker to the send queue. Its completion may be polled as soon as it is published.
func (q *QP) putSendMarker(m *marker) error {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	if err := q.usable(); err != nil {
		return err
	}
	m.index = q.send.posted
	if err := q.putSend(&SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled}); err != nil {
		return err
	}
	q.send.marker.Store(m)
	q.block.PublishSend(q.send.posted)
	q.ring()
	return nil
}

// putRecvMarker posts a marker to the receive queue.
func (q *QP) putRecvMarker(m *marker) error {
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	if err := q.usable(); err != nil {
		return err
	}
	m.index = q.recv.posted
	if err := q.putRecv(&RecvWR{}); err != nil {
		return err
	}
	q.recv.marker.Store(m)
	q.block.PublishRecv(q.recv.posted)
	q.ring()
	return nil
}
