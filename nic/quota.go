package nic

import (
	"fmt"
	"sync"
	"syscall"
)

// resource is something of which an application may have only so much.
type resource uint8

const (
	resContexts resource = iota
	resPDs
	resQPs
	resCQs
	resCQEs
	resMRs
	resMemory
	resSRQs
	resMWs
	resAHs
	resXRCDs
	resAttachments
	numResources
)

var resourceNames = [numResources]string{
	"contexts", "protection domains", "queue pairs", "completion queues", "completion queue entries", "memory regions",
	"bytes of mapped memory", "shared receive queues", "memory windows", "address handles", "XRC domains", "multicast attachments",
}

const unlimited = ^uint64(0)

// What a tenant other than the daemon's own user may have, over all its contexts and in one.
var (
	tenantQuota  = [numResources]uint64{16, 256, 1024, 1024, 1 << 20, 4096, 1 << 30, 1024, 4096, 16384, 256, 128}
	contextQuota = [numResources]uint64{unlimited, 64, 512, 512, 1 << 20, 2048, 1 << 30, 512, 2048, 8192, 64, 64}
)

// ledger counts what tenants have. Everything is charged here before it is allocated and uncharged here when it is gone.
type ledger struct {
	limits [numResources]uint64

	mu      sync.Mutex
	used    [numResources]uint64
	tenants map[uint64]*account
}

// account is what one tenant has in all its contexts.
type account struct {
	tenant uint64
	used   [numResources]uint64
}

// purse is what one context has, and where it is charged.
type purse struct {
	ledger  *ledger
	account *account
	owner   bool // the daemon's own user: the device's limits alone
	used    [numResources]uint64
}

func newLedger(l *Limits) *ledger {
	g := &ledger{tenants: make(map[uint64]*account)}
	g.limits = [numResources]uint64{
		resContexts: uint64(l.MaxContexts),
		resPDs:      uint64(l.MaxPD),
		resQPs:      uint64(l.MaxQP),
		resCQs:      uint64(l.MaxCQ),
		resCQEs:     unlimited,
		resMRs:      uint64(l.MaxMR),
		resMemory:   l.MaxMapped,
		resSRQs:     uint64(l.MaxSRQ),
		resMWs:      uint64(l.MaxMW),
		resAHs:      uint64(l.MaxAH),
		resXRCDs:    uint64(l.MaxPD),

		resAttachments: maxAttachments,
	}
	return g
}

// open makes the purse of a new context and charges the context itself.
func (g *ledger) open(tenant uint64, owner bool) (*purse, error) {
	g.mu.Lock()
	a := g.tenants[tenant]
	if a == nil {
		a = &account{tenant: tenant}
	}
	g.mu.Unlock()
	p := &purse{ledger: g, account: a, owner: owner}
	if err := p.charge(resContexts, 1); err != nil {
		return nil, err
	}
	return p, nil
}

// charge takes n of r, or nothing and says which limit is in the way: ENOMEM for the device's, EDQUOT for a quota.
func (p *purse) charge(r resource, n uint64) error {
	g := p.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	// Accounts without charges are not kept, so another context may have replaced the one found at open.
	if a := g.tenants[p.account.tenant]; a != nil {
		p.account = a
	}
	if over(g.used[r], n, g.limits[r]) {
		return fmt.Errorf("the device's limit of %d %s is reached: %w", g.limits[r], resourceNames[r], syscall.ENOMEM)
	}
	if !p.owner && over(p.account.used[r], n, tenantQuota[r]) {
		return fmt.Errorf("the quota of %d %s for each user is reached: %w", tenantQuota[r], resourceNames[r], syscall.EDQUOT)
	}
	if !p.owner && over(p.used[r], n, contextQuota[r]) {
		return fmt.Errorf("the quota of %d %s for each context is reached: %w", contextQuota[r], resourceNames[r], syscall.EDQUOT)
	}
	g.tenants[p.account.tenant] = p.account
	g.used[r] += n
	p.account.used[r] += n
	p.used[r] += n
	return nil
}

// uncharge gives back what was charged.
func (p *purse) uncharge(r resource, n uint64) {
	g := p.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.used[r] < n || p.account.used[r] < n || g.used[r] < n {
		panic(fmt.Sprintf("nic: uncharged %d %s of %d", n, resourceNames[r], p.used[r]))
	}
	g.used[r] -= n
	p.account.used[r] -= n
	p.used[r] -= n
	if p.account.used == ([numResources]uint64{}) {
		delete(g.tenants, p.account.tenant)
	}
}

func over(used, n, limit uint64) bool { return n > limit || used > limit-n }
