package nic

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// Objects are destroyed in order of dependency; who is in use stays, who is gone or another's is not found.
func TestDestroyOrder(t *testing.T) {
	_, a, b := newPair(t, nil)
	x := a.newQP(t, nil)
	expect := func(what string, err error, want syscall.Errno) {
		t.Helper()
		if errno(err) != want || err != nil && want == 0 {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	expect("dealloc pd with mr and qp", a.ctx.DeallocPD(a.pd), syscall.EBUSY)
	expect("destroy cq with qp", a.ctx.DestroyCQ(a.cq), syscall.EBUSY)
	expect("destroy another's qp", b.ctx.DestroyQP(x.qp), syscall.EINVAL)
	expect("destroy another's cq", b.ctx.DestroyCQ(a.cq), syscall.EINVAL)
	expect("dereg another's mr", b.ctx.DeregMR(a.mr), syscall.EINVAL)
	expect("dealloc another's pd", b.ctx.DeallocPD(a.pd), syscall.EINVAL)
	expect("modify another's qp", b.ctx.ModifyQP(x.qp, &ib.QPAttr{}, ib.QPAttrState), syscall.EINVAL)
	expect("destroy nil qp", a.ctx.DestroyQP(nil), syscall.EINVAL)
	_, err := b.ctx.CreateQP(QPConfig{PD: a.pd, Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq})
	expect("create qp on another's pd", err, syscall.EINVAL)
	_, err = b.ctx.CreateQP(QPConfig{PD: b.pd, Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: a.cq})
	expect("create qp on another's cq", err, syscall.EINVAL)

	expect("destroy qp", a.ctx.DestroyQP(x.qp), 0)
	expect("destroy qp again", a.ctx.DestroyQP(x.qp), syscall.EINVAL)
	expect("dealloc pd with mr", a.ctx.DeallocPD(a.pd), syscall.EBUSY)
	expect("dereg mr", a.ctx.DeregMR(a.mr), 0)
	expect("dereg mr again", a.ctx.DeregMR(a.mr), syscall.EINVAL)
	expect("dealloc pd", a.ctx.DeallocPD(a.pd), 0)
	expect("dealloc pd again", a.ctx.DeallocPD(a.pd), syscall.EINVAL)
	expect("destroy cq", a.ctx.DestroyCQ(a.cq), 0)
	expect("destroy cq again", a.ctx.DestroyCQ(a.cq), syscall.EINVAL)
	_, err = a.ctx.RegMR(a.pd, MRConfig{Region: dma.NewEmbedded(a.mem), Length: 8})
	expect("reg mr in a pd that is gone", err, syscall.EINVAL)
	expect("close", a.ctx.Close(), 0)
	expect("close again", a.ctx.Close(), 0)
	_, err = a.ctx.AllocPD()
	expect("alloc pd in a closed context", err, syscall.EINVAL)
	a.checkEmpty(t)
}

func TestCreateQPRefuses(t *testing.T) {
	_, a, _ := newPair(t, nil)
	used := a.dev.ledger.used
	for name, tt := range map[string]struct {
		edit func(c *QPConfig)
		want syscall.Errno
	}{
		"raw":                         {func(c *QPConfig) { c.Type = ib.QPTypeRawPacket }, syscall.EOPNOTSUPP},
		"GSI":                         {func(c *QPConfig) { c.Type = ib.QPTypeGSI }, syscall.EINVAL},
		"type 0":                      {func(c *QPConfig) { c.Type = 0 }, syscall.EINVAL},
		"send wr":                     {func(c *QPConfig) { c.Cap.MaxSendWR = 16385 }, syscall.EINVAL},
		"recv wr":                     {func(c *QPConfig) { c.Cap.MaxRecvWR = 1<<32 - 1 }, syscall.EINVAL},
		"send sge":                    {func(c *QPConfig) { c.Cap.MaxSendSGE = 33 }, syscall.EINVAL},
		"recv sge":                    {func(c *QPConfig) { c.Cap.MaxRecvSGE = 33 }, syscall.EINVAL},
		"inline":                      {func(c *QPConfig) { c.Cap.MaxInlineData = 513 }, syscall.EINVAL},
		"no pd":                       {func(c *QPConfig) { c.PD = nil }, syscall.EINVAL},
		"no cq":                       {func(c *QPConfig) { c.SendCQ = nil }, syscall.EINVAL},
		"no block":                    {func(c *QPConfig) { c.Block = nil }, syscall.EINVAL},
		"block of multicast of an RC": {func(c *QPConfig) { c.Flags = ib.QPCreateBlockSelfMcastLB }, syscall.EINVAL},
		"unknown flag":                {func(c *QPConfig) { c.Type, c.Flags = ib.QPTypeUD, 1<<8 }, syscall.EOPNOTSUPP},
		"short block": {func(c *QPConfig) {
			c.Block = func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()-1), nil }
		}, syscall.EINVAL},
		"failing block": {func(c *QPConfig) {
			c.Block = func(abi.QPLayout) ([]byte, error) { return nil, fmt.Errorf("no arena: %w", syscall.ENOENT) }
		}, syscall.ENOENT},
	} {
		cfg := QPConfig{PD: a.pd, Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: testCap,
			Block: func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()), nil }}
		tt.edit(&cfg)
		if _, err := a.ctx.CreateQP(cfg); errno(err) != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if used != a.dev.ledger.used || a.pd.refs != 1 || a.cq.refs != 0 || a.dev.shards[0].table.live != 0 {
		t.Error("a refused queue pair left something behind")
	}
}

func TestRegMRRefuses(t *testing.T) {
	_, a, _ := newPair(t, nil)
	used, keys := a.dev.ledger.used, a.dev.keys.Len()
	region := dma.NewEmbedded(make([]byte, 100))
	for name, tt := range map[string]struct {
		cfg  MRConfig
		want syscall.Errno
	}{
		"length 0":              {MRConfig{Region: region}, syscall.EINVAL},
		"no region":             {MRConfig{Length: 1}, syscall.EINVAL},
		"beyond the region":     {MRConfig{Region: region, Offset: 1, Length: 100}, syscall.EINVAL},
		"offset wraps":          {MRConfig{Region: region, Offset: 1<<64 - 1, Length: 2}, syscall.EINVAL},
		"address wraps":         {MRConfig{Region: region, Base: 1<<64 - 50, Length: 100}, syscall.EINVAL},
		"remote write alone":    {MRConfig{Region: region, Length: 1, Access: ib.AccessRemoteWrite}, syscall.EINVAL},
		"remote atomic alone":   {MRConfig{Region: region, Length: 1, Access: ib.AccessRemoteAtomic}, syscall.EINVAL},
		"on demand":             {MRConfig{Region: region, Length: 1, Access: ib.AccessOnDemand}, syscall.EOPNOTSUPP},
		"unknown right":         {MRConfig{Region: region, Length: 1, Access: 1 << 15}, syscall.EINVAL},
		"optional right is ok":  {MRConfig{Region: region, Length: 1, Access: ib.AccessRelaxedOrdering}, 0},
		"any optional right":    {MRConfig{Region: region, Length: 1, Access: ib.AccessOptional}, 0},
		"beyond the optional":   {MRConfig{Region: region, Length: 1, Access: 1 << 30}, syscall.EINVAL},
		"flush, persistent":     {MRConfig{Region: region, Length: 1, Access: ib.AccessFlushPersistent}, syscall.EOPNOTSUPP},
		"flush, global":         {MRConfig{Region: region, Length: 1, Access: ib.AccessFlushGlobal}, 0},
		"for windows":           {MRConfig{Region: region, Length: 1, Access: ib.AccessMWBind}, 0},
		"huge pages":            {MRConfig{Region: region, Length: 1, Access: ib.AccessHugeTLB}, 0},
		"zero-based":            {MRConfig{Region: region, Length: 1, Access: ib.AccessZeroBased}, 0},
		"zero-based, elsewhere": {MRConfig{Region: region, Length: 1, Base: 4096, Access: ib.AccessZeroBased}, syscall.EINVAL},
	} {
		m, err := a.ctx.RegMR(a.pd, tt.cfg)
		if errno(err) != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err == nil {
			if err := a.ctx.DeregMR(m); err != nil {
				t.Error(err)
			}
		}
	}
	if used != a.dev.ledger.used || a.pd.refs != 1 || a.dev.keys.Len() != keys {
		t.Error("a refused region left something behind")
	}
}

func TestCreateCQ(t *testing.T) {
	_, a, _ := newPair(t, nil)
	block := make([]byte, abi.CQBlockSize(128))
	for _, tt := range []struct {
		cfg  CQConfig
		want syscall.Errno
	}{
		{CQConfig{Block: block, Entries: 0}, syscall.EINVAL},
		{CQConfig{Block: block, Entries: 4194304}, syscall.EINVAL},
		{CQConfig{Block: block, Entries: 129}, syscall.EINVAL},
		{CQConfig{Block: block, Entries: 65, Vector: 1 << 20}, syscall.EINVAL},
		{CQConfig{Block: block, Entries: 65}, 0},
	} {
		q, err := a.ctx.CreateCQ(tt.cfg)
		if errno(err) != tt.want {
			t.Errorf("%d entries, vector %d: %v, want %v", tt.cfg.Entries, tt.cfg.Vector, err, tt.want)
		}
		if err == nil && q.Capacity() != 128 {
			t.Errorf("capacity %d, want 128", q.Capacity())
		}
	}
}

// A tenant's quota counts over its contexts and ends with them.
func TestContextQuotas(t *testing.T) {
	_, a, _ := newPair(t, nil)
	var ctxs []*Context
	for {
		c, err := a.dev.OpenContext(ContextConfig{Tenant: 7})
		if err != nil {
			if errno(err) != syscall.EDQUOT || len(ctxs) != 16 {
				t.Errorf("after %d contexts: %v", len(ctxs), err)
			}
			break
		}
		ctxs = append(ctxs, c)
	}
	if err := ctxs[0].ChargeMemory(1 << 30); err != nil {
		t.Error(err)
	}
	if err := ctxs[1].ChargeMemory(1); errno(err) != syscall.EDQUOT {
		t.Errorf("memory beyond the quota: %v", err)
	}
	ctxs[0].ReleaseMemory(10)
	if err := ctxs[1].ChargeMemory(10); err != nil {
		t.Error(err)
	}
	pds := 0
	for ; ; pds++ {
		if _, err := ctxs[0].AllocPD(); err != nil {
			if errno(err) != syscall.EDQUOT || pds != 64 {
				t.Errorf("after %d domains: %v", pds, err)
			}
			break
		}
	}
	for _, c := range ctxs {
		c.Close()
	}
	if _, err := a.dev.OpenContext(ContextConfig{Tenant: 7}); err != nil {
		t.Error(err)
	}
	a.dev.Close()
	a.checkEmpty(t)
	if _, err := a.dev.OpenContext(ContextConfig{Owner: true}); errno(err) != syscall.ENODEV {
		t.Errorf("open a closed device: %v, want ENODEV", err)
	}
}

// A thousand queue pairs made, connected, used and destroyed; memory is back where it was.
func TestThousandQueuePairs(t *testing.T) {
	w, a, b := newPair(t, nil)
	small := func(c *QPConfig) { c.Cap = ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1} }
	round := func(n int) {
		xs, ys := make([]*endpoint, n), make([]*endpoint, n)
		for i := range xs {
			xs[i], ys[i] = a.newQP(t, small), b.newQP(t, small)
			xs[i].connect(t, ys[i])
			ys[i].connect(t, xs[i])
		}
		for i := range xs {
			ys[i].postRecv(uint64(i), ys[i].sge(64*i, 64))
			xs[i].postSend(sendWQE(uint64(i)), xs[i].sge(64*i, 64))
			if i%500 == 499 || i == n-1 {
				w.run(time.Second)
				if c := a.poll(t); len(c) != i%500+1 {
					t.Fatalf("%d sends completed, want %d", len(c), i%500+1)
				}
				if c := b.poll(t); len(c) != i%500+1 {
					t.Fatalf("%d receives completed, want %d", len(c), i%500+1)
				}
			}
		}
		for i := range xs {
			if err := a.ctx.DestroyQP(xs[i].qp); err != nil {
				t.Fatal(err)
			}
			if err := b.ctx.DestroyQP(ys[i].qp); err != nil {
				t.Fatal(err)
			}
		}
	}
	round(10)
	before := heap()
	round(1000)
	if after := heap(); after > before+1<<20 {
		t.Errorf("heap %d KiB before, %d KiB after", before>>10, after>>10)
	}
	a.dev.Close()
	b.dev.Close()
	a.checkEmpty(t)
	b.checkEmpty(t)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
