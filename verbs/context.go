package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/verbs/internal/arena"
)

// Context is an open device. Everything made in it ends with it.
type Context struct {
	conn     ctl.Conn
	embedded bool
	name     string
	guid     uint64
	serial   uint32 // of the context on the device
	// reclaimPoll gives the slots of a queue pair back when completions are polled, as hardware does, and not when the
	// requests complete.
	reclaimPoll bool

	pageMem []byte
	page    *abi.DevicePage
	bellMem []byte
	bell    *abi.Doorbell
	bellFD  int
	arenas  *arena.Set
	async   *eventSocket
	events  asyncQueue // what was read from async

	gone   atomic.Bool // the daemon is
	closed atomic.Bool

	mu       sync.Mutex
	cookie   uint64 // the last one given; none is given twice
	cqs      map[uint64]*CQ
	qps      map[uint64]*QP
	srqs     map[uint64]*SRQ
	channels map[*CompChannel]struct{}
	pinned   map[*MR]struct{}
	process  bool // the daemon knows how to reach this process's memory

	slots slotTable
}

// OpenConn opens a device over an existing connection, which the context then owns unless there is an error. It is for
// devices that are not reached by the control socket: see package verbs/embedded.
func OpenConn(conn ctl.Conn, name string) (*Context, error) {
	if len(name) >= ctl.NameSize {
		return nil, fmt.Errorf("open %s: the name is too long: %w", name, syscall.ENODEV)
	}
	e, ok := conn.(interface{ Embedded() bool })
	c := &Context{
		conn: conn, embedded: ok && e.Embedded(), bellFD: -1,
		cqs: map[uint64]*CQ{}, qps: map[uint64]*QP{}, srqs: map[uint64]*SRQ{}, channels: map[*CompChannel]struct{}{}, pinned: map[*MR]struct{}{},
	}
	c.arenas = arena.New(arenaSource{c})
	if err := c.open(name); err != nil {
		c.unmap()
		return nil, err
	}
	go func() {
		<-conn.Done()
		c.gone.Store(true)
	}()
	return c, nil
}

func (c *Context) open(name string) error {
	at, mem, err := c.newMemory("softnic-doorbell", abi.DoorbellSize)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer closeAttachments([]ctl.Attachment{at})
	c.bellMem = mem
	if c.bell, err = abi.NewDoorbell(mem); err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	q := &ctl.Open{ABIVersion: abi.Version}
	copy(q.Name[:], name)
	var r ctl.OpenReply
	out, err := c.conn.Call(ctl.OpOpen, q, &r, at)
	if err != nil {
		return err
	}
	if len(out) != 3 {
		closeAttachments(out)
		return fmt.Errorf("open %s: the daemon sent %d descriptors instead of 3: %w", name, len(out), syscall.EPROTO)
	}
	c.bellFD = out[1].FD
	c.name, c.guid, c.reclaimPoll, c.serial = text(r.Name[:]), r.NodeGUID, r.ReclaimPoll != 0, r.Context
	if c.async, err = newEventSocket("asynchronous events", out[2].FD); err != nil {
		closeAttachments(out[:1])
		unix.Close(out[2].FD)
		return fmt.Errorf("open %s: %w", name, err)
	}
	if c.pageMem = out[0].Memory; !c.embedded {
		c.pageMem, err = shm.MapReadOnly(out[0].FD, abi.DevicePageSize)
		unix.Close(out[0].FD)
		if err != nil {
			return fmt.Errorf("open %s: device page: %w", name, err)
		}
	}
	if c.page, err = abi.NewDevicePage(c.pageMem); err == nil {
		err = c.page.Check()
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	return nil
}

// Name returns the device's name.
func (c *Context) Name() string { return c.name }

// NodeGUID returns the device's GUID, in host order.
func (c *Context) NodeGUID() uint64 { return c.guid }

// Close closes the device and everything made in it. Memory of AllocBuffer is unmapped: nobody may touch it any more.
// Calls that wait return ErrClosed.
func (c *Context) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	err := c.conn.Close()
	c.gone.Store(true)
	c.mu.Lock()
	cqs, qps, srqs, channels := c.cqs, c.qps, c.srqs, c.channels
	c.cqs, c.qps, c.srqs, c.channels = map[uint64]*CQ{}, map[uint64]*QP{}, map[uint64]*SRQ{}, map[*CompChannel]struct{}{}
	pinned := c.pinned
	c.pinned = map[*MR]struct{}{}
	c.mu.Unlock()
	// Posts and polls touch shared memory only with their queue locked, and not once it is closed.
	for _, q := range qps {
		q.shut()
	}
	for _, q := range srqs {
		q.shut()
	}
	for _, q := range cqs {
		q.shut()
	}
	for ch := range channels {
		ch.shut()
	}
	for m := range pinned {
		m.pinner.Unpin()
	}
	return errors.Join(err, c.unmap())
}

// unmap lets go of descriptors and memory.
func (c *Context) unmap() error {
	var errs []error
	if c.async != nil {
		errs = append(errs, c.async.Close())
	}
	if c.bellFD >= 0 {
		errs = append(errs, unix.Close(c.bellFD))
		c.bellFD = -1
	}
	if c.embedded {
		return errors.Join(errs...)
	}
	c.arenas.Memories(func(mem []byte) { errs = append(errs, shm.Unmap(mem)) })
	for _, mem := range [][]byte{c.pageMem, c.bellMem} {
		if mem != nil {
			errs = append(errs, shm.Unmap(mem))
		}
	}
	return errors.Join(errs...)
}

// lost reports whether the daemon is gone. The socket tells, after a moment; the word in the device page is marked by the
// kernel while the daemon dies. Whoever calls it holds a lock that keeps the page mapped.
func (c *Context) lost() bool { return c.gone.Load() || c.page.Dead() }

// fail returns the error of operations on a context that is closed or whose daemon is gone; nil if neither.
func (c *Context) fail() error {
	switch {
	case c.closed.Load():
		return ErrClosed
	case c.gone.Load():
		return ErrDeviceFatal
	}
	return nil
}

// call sends a request without attachments.
func (c *Context) call(op ctl.Op, request, reply any, attach ...ctl.Attachment) error {
	if err := c.fail(); err != nil {
		return err
	}
	out, err := c.conn.Call(op, request, reply, attach...)
	closeAttachments(out)
	return err
}

// newCookie returns a number that names an object in events, and never names another.
func (c *Context) newCookie() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cookie++
	return c.cookie
}

// newMemory makes memory that the device can map. Embedded devices see the heap, as the race detector does.
func (c *Context) newMemory(name string, size int) (ctl.Attachment, []byte, error) {
	if c.embedded {
		mem := alignedMemory(size)
		return ctl.Attachment{FD: -1, Memory: mem}, mem, nil
	}
	fd, err := shm.Create(name, size)
	if err != nil {
		return ctl.Attachment{FD: -1}, nil, err
	}
	mem, err := shm.Map(fd, size)
	if err != nil {
		unix.Close(fd)
		return ctl.Attachment{FD: -1}, nil, err
	}
	return ctl.Attachment{FD: fd}, mem, nil
}

// arenaSource gives the arenas of a context their memory.
type arenaSource struct{ c *Context }

// Grow implements arena.Source.
func (s arenaSource) Grow(size uint64) (uint32, []byte, error) {
	at, mem, err := s.c.newMemory("softnic-arena", int(size))
	if err != nil {
		return 0, nil, err
	}
	// The mapping stays; the descriptor is not needed any more, here or there.
	defer closeAttachments([]ctl.Attachment{at})
	var r ctl.HandleReply
	if err := s.c.call(ctl.OpAddArena, &ctl.AddArena{Size: size}, &r, at); err != nil {
		return 0, nil, errors.Join(err, s.unmap(mem))
	}
	return r.Handle, mem, nil
}

// Shrink implements arena.Source.
func (s arenaSource) Shrink(handle uint32, mem []byte) error {
	err := s.c.call(ctl.OpRemoveArena, &ctl.Handle{Handle: handle}, &ctl.Empty{})
	return errors.Join(err, s.unmap(mem))
}

func (s arenaSource) unmap(mem []byte) error {
	if s.c.embedded {
		return nil
	}
	return shm.Unmap(mem)
}

// slotTable finds queue pairs by doorbell slot, without a lock.
type slotTable struct {
	leaves [abi.MaxQPSlots / 64]atomic.Pointer[[64]atomic.Pointer[QP]]
}

func (t *slotTable) get(slot uint32) *QP {
	if slot >= abi.MaxQPSlots {
		return nil
	}
	leaf := t.leaves[slot/64].Load()
	if leaf == nil {
		return nil
	}
	return leaf[slot%64].Load()
}

// put enters a queue pair. The daemon gives no slot that it has given already.
func (t *slotTable) put(slot uint32, q *QP) error {
	if slot >= abi.MaxQPSlots {
		return fmt.Errorf("the daemon gave doorbell slot %d: %w", slot, syscall.EPROTO)
	}
	leaf := t.leaves[slot/64].Load()
	if leaf == nil {
		t.leaves[slot/64].CompareAndSwap(nil, new([64]atomic.Pointer[QP]))
		leaf = t.leaves[slot/64].Load()
	}
	leaf[slot%64].Store(q)
	return nil
}

// remove forgets a queue pair, unless its slot has another one already.
func (t *slotTable) remove(slot uint32, q *QP) {
	if leaf := t.leaves[slot/64].Load(); leaf != nil {
		leaf[slot%64].CompareAndSwap(q, nil)
	}
}
