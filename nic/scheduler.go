package nic

// Quanta of the scheduler, in bytes. A tenant's quantum is a whole group of segmentation offload with a path MTU of 4096,
// so that fairness does not cost batching; a lone sender waits for at most a quantum of every other tenant.
const (
	tenantQuantum = 64 << 10
	flowQuantum   = 64 << 10
)

// scheduler divides the port by deficit round robin: between the tenants that have something to send, and within each
// between its queue pairs. Whoever is in a list has work, so nothing is searched for; lists are threaded through their
// members, so nothing is allocated.
//
// Who comes to the head of its list gets a quantum and is served until it is used up, then goes to the tail. An engine
// finishes the packet that exceeds its allowance: what was too much is a debt, which is kept even by who leaves the list
// meanwhile; a credit is not.
type scheduler struct {
	tenants ring[*tenant]
	ready   int // flows in all lists
}

// tenant is the queue pairs of one user on this shard, of one program where the user is the owner.
type tenant struct {
	id      uint64
	refs    int // contexts
	deficit int
	flows   ring[*flow]
	links   links[*tenant]
}

// flow is a queue pair to the scheduler.
type flow struct {
	tenant  *tenant
	deficit int
	links   links[*flow]
	qp      *QP
}

func (t *tenant) list() *links[*tenant] { return &t.links }
func (f *flow) list() *links[*flow]     { return &f.links }

// add puts f into its tenant's list: it has something to send. A flow that is there stays where it is.
func (s *scheduler) add(f *flow) {
	if f.links.in {
		return
	}
	t := f.tenant
	t.flows.push(f)
	s.ready++
	if !t.links.in {
		s.tenants.push(t)
	}
}

// remove takes f out of its list: it is destroyed.
func (s *scheduler) remove(f *flow) {
	if !f.links.in {
		return
	}
	t := f.tenant
	t.flows.remove(f)
	s.ready--
	if t.flows.empty() {
		s.leave(t)
	}
}

// leave takes a tenant out that has nothing more to send. Its debt stays, a credit is not saved up.
func (s *scheduler) leave(t *tenant) {
	s.tenants.remove(t)
	t.deficit = min(t.deficit, 0)
}

// next returns the flow to serve and how many bytes it may send, nil if there is none. The caller then says by charge
// what came of it.
func (s *scheduler) next() (*flow, int) {
	t := s.tenants.head
	if t == nil {
		return nil, 0
	}
	for t.deficit <= 0 {
		t.deficit += tenantQuantum
		if t.deficit > 0 {
			break
		}
		s.tenants.rotate()
		t = s.tenants.head
	}
	f := t.flows.head
	for f.deficit <= 0 {
		f.deficit += flowQuantum
		if f.deficit > 0 {
			break
		}
		t.flows.rotate()
		f = t.flows.head
	}
	return f, min(f.deficit, t.deficit)
}

// charge accounts for bytes that f, the flow next returned, has sent, and says whether it has more. It may have left the
// list since, destroyed while it was served.
func (s *scheduler) charge(f *flow, bytes int, more bool) {
	t := f.tenant
	f.deficit -= bytes
	t.deficit -= bytes
	if !f.links.in {
		return
	}
	if !more {
		t.flows.remove(f)
		s.ready--
		f.deficit = min(f.deficit, 0)
		if t.flows.empty() {
			s.leave(t)
			return
		}
	} else if f.deficit <= 0 {
		t.flows.rotateFrom(f)
	}
	if t.deficit <= 0 {
		s.tenants.rotateFrom(t)
	}
}

// links make something a member of a ring.
type links[T any] struct {
	next, prev T
	in         bool
}

type linked[T any] interface {
	comparable
	list() *links[T]
}

// ring is a circular list threaded through its members; head is the oldest.
type ring[T linked[T]] struct{ head T }

func (r *ring[T]) empty() bool {
	var none T
	return r.head == none
}

// push makes m the youngest.
func (r *ring[T]) push(m T) {
	l := m.list()
	l.in = true
	if r.empty() {
		r.head, l.next, l.prev = m, m, m
		return
	}
	h := r.head.list()
	l.next, l.prev = r.head, h.prev
	h.prev.list().next = m
	h.prev = m
}

func (r *ring[T]) remove(m T) {
	var none T
	l := m.list()
	if l.next == m {
		r.head = none
	} else {
		l.prev.list().next = l.next
		l.next.list().prev = l.prev
		if r.head == m {
			r.head = l.next
		}
	}
	*l = links[T]{}
}

// rotate makes the oldest the youngest.
func (r *ring[T]) rotate() { r.head = r.head.list().next }

// rotateFrom does so if m is the oldest.
func (r *ring[T]) rotateFrom(m T) {
	if r.head == m {
		r.rotate()
	}
}
