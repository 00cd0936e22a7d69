package capture

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"github.com/softnic/softnicd/clock"
)

// Config is how to capture. The zero Config will do.
type Config struct {
	// Start is the wall time when the devices' clock was zero; the zero Start is derived from Clock and the present.
	Start time.Time
	// Clock is the devices' clock, of use only without Start; nil is clock.Monotonic.
	Clock clock.Source
	// Live reads Clock for each burst, in place of the time that the port is told: that is when a shard's round began,
	// and on a busy machine a round can begin long before it sends.
	Live bool
	// Buffer is the bytes that may wait to be written; 0 is 8 MiB.
	Buffer int
}

// File is a capture being written. Any number of ports, of any number of shards, may be wrapped.
type File struct {
	start int64        // nanoseconds since 1970 of clock zero
	live  clock.Source // nil: times are those the port is told
	w     io.Writer
	wake  chan struct{} // the queue is no longer empty, or the file is closed
	done  chan struct{}

	mu         sync.Mutex
	queue      []byte
	limit      int
	closed     bool
	err        error
	interfaces *pcapgo.NgWriter
	counts     []counts
}

// counts are those of one interface.
type counts struct{ written, dropped uint64 }

// IncompleteError says that packets are missing from a capture.
type IncompleteError struct {
	Written, Dropped uint64
	// Err is why writing failed; nil if it was merely slower than the traffic.
	Err error
}

func (e *IncompleteError) Error() string {
	why := "writing was slower than the traffic"
	if e.Err != nil {
		why = e.Err.Error()
	}
	return fmt.Sprintf("capture is incomplete: %d packets dropped, %d written: %s", e.Dropped, e.Written, why)
}

// Unwrap returns the error of writing.
func (e *IncompleteError) Unwrap() error { return e.Err }

// New starts a capture to w, which stays the caller's to close, after the file.
func New(w io.Writer, cfg Config) (*File, error) {
	if cfg.Buffer <= 0 {
		cfg.Buffer = 8 << 20
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Monotonic
	}
	if cfg.Start.IsZero() {
		cfg.Start = time.Now().Add(-time.Duration(cfg.Clock()))
	}
	var live clock.Source
	if cfg.Live {
		live = cfg.Clock
	}
	f := &File{
		start: cfg.Start.UnixNano(), live: live, w: w, wake: make(chan struct{}, 1), done: make(chan struct{}),
		// Half of the room waits while the other half is being written.
		queue: make([]byte, 0, cfg.Buffer/2), limit: cfg.Buffer / 2,
	}
	go f.write(make([]byte, 0, cfg.Buffer/2))
	return f, nil
}

// addInterface describes an interface in the file and returns its number.
func (f *File) addInterface(name string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, fmt.Errorf("capture interface %s: %w", name, os.ErrClosed)
	}
	if err := f.describe(name); err != nil {
		return 0, fmt.Errorf("capture interface %s: %w", name, err)
	}
	f.counts = append(f.counts, counts{})
	return len(f.counts) - 1, nil
}

// describe writes the block of an interface, and before the first one the file's header.
func (f *File) describe(name string) (err error) {
	i := pcapgo.NgInterface{
		Name: name, Description: "softnicd port", OS: runtime.GOOS, LinkType: layers.LinkTypeEthernet,
		TimestampResolution: 9,
	}
	if f.interfaces == nil {
		f.interfaces, err = pcapgo.NewNgWriterInterface((*appender)(f), i, pcapgo.NgWriterOptions{
			SectionInfo: pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "softnicd"},
		})
	} else {
		_, err = f.interfaces.AddInterface(i)
	}
	if err != nil {
		return err
	}
	return f.interfaces.Flush()
}

// appender takes the blocks that gopacket writes into the queue, however full it is. The caller holds the lock.
type appender File

func (a *appender) Write(b []byte) (int, error) {
	f := (*File)(a)
	f.signal()
	f.queue = append(f.queue, b...)
	return len(b), nil
}

// signal is called under the lock, before something is added to the queue.
func (f *File) signal() {
	if len(f.queue) > 0 {
		return // the writer knows
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// add queues a packet, or drops it.
func (f *File) add(p *block) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.counts[p.iface]
	if f.closed || f.err != nil || f.limit-len(f.queue) < p.size() {
		c.dropped++
		return
	}
	c.written++
	f.signal()
	f.queue = p.appendTo(f.queue, f.start)
}

func (f *File) drop(iface int) {
	f.mu.Lock()
	f.counts[iface].dropped++
	f.mu.Unlock()
}

// write is the file's goroutine: it takes the whole queue at a time.
func (f *File) write(spare []byte) {
	defer close(f.done)
	for range f.wake {
		for {
			f.mu.Lock()
			full := f.queue
			f.queue = spare[:0]
			failed, closed := f.err != nil, f.closed
			f.mu.Unlock()
			if len(full) > 0 && !failed {
				if _, err := f.w.Write(full); err != nil {
					f.mu.Lock()
					f.err = err
					f.mu.Unlock()
				}
			}
			spare = full
			if len(full) > 0 {
				continue
			}
			if closed {
				return
			}
			break
		}
	}
}

// Dropped returns how many packets were dropped so far.
func (f *File) Dropped() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sum().dropped
}

func (f *File) sum() (s counts) {
	for _, c := range f.counts {
		s.written += c.written
		s.dropped += c.dropped
	}
	return s
}

// Close writes what waits. Ports that are still wrapped go on without being captured. The error is an *IncompleteError if
// any packet is missing.
func (f *File) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.finish()
	f.closed = true
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sum(); s.dropped > 0 || f.err != nil {
		return &IncompleteError{Written: s.written, Dropped: s.dropped, Err: f.err}
	}
	return nil
}

// finish ends the file with what is known about each interface. A capture of nothing is still a pcapng file.
func (f *File) finish() {
	if f.interfaces == nil {
		_ = f.describe("none")
	}
	for i, c := range f.counts {
		// The errors are those of appender, which has none.
		_ = f.interfaces.WriteInterfaceStats(i, pcapgo.NgInterfaceStatistics{
			LastUpdate: time.Now(), PacketsReceived: c.written + c.dropped, PacketsDropped: c.dropped,
		})
		_ = f.interfaces.Flush()
	}
}
