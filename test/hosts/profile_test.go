package hosts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// A program that takes the wrong GID index finds out: each profile's table on a real interface, which entries connect, and
// what is said of the others.
func TestProfiles(t *testing.T) {
	w := newNetwork(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	const v1, v2 = "IB/RoCE v1", "RoCE v2"
	for _, c := range []struct {
		profile string
		table   []string
		good    []int // indexes that reach the other host
	}{
		{"softnic", []string{"10.9.0.1 " + v2, "fd09::1 " + v2}, []int{0, 1}},
		{"rxe", []string{"default " + v2, "10.9.0.1 " + v2, "fd09::1 " + v2}, []int{1, 2}},
		{"irdma", []string{"default " + v2, "10.9.0.1 " + v2, "fd09::1 " + v2}, []int{1, 2}},
		{"connectx", []string{"default " + v1, "default " + v2, "10.9.0.1 " + v1, "10.9.0.1 " + v2, "fd09::1 " + v1, "fd09::1 " + v2}, []int{3, 5}},
	} {
		t.Run(c.profile, func(t *testing.T) {
			h := &host{t: t, net: w, ns: a.ns, number: 1, socket: filepath.Join(t.TempDir(), "s")}
			h.launch("rdma0=eth0", "--profile="+c.profile, "--port=14791") // beside the host's first daemon
			h.open("rdma0")
			var table []string
			for _, e := range must(h.ctx.QueryGIDTable(1)) {
				addr := e.GID.Addr()
				name := addr.String()
				if addr.IsLinkLocalUnicast() {
					name = "default"
				}
				table = append(table, fmt.Sprint(name, " ", e.Type))
			}
			if !slices.Equal(table, c.table) {
				t.Fatalf("GIDs %q, want %q", table, c.table)
			}
			for i, e := range must(h.ctx.QueryGIDTable(1)) {
				s := newSide(t, h, "v4", ib.QPTypeRC)
				s.index = uint8(i)
				family := "v6"
				if e.GID.Is4() {
					family = "v4"
				}
				far := verbs.Endpoint{QPN: 1, PSN: 1, GID: ib.GIDFromAddr(b.addr(family))}
				err := s.qp.ConnectRC(s.end, far, s.rcAttr())
				if good := slices.Contains(c.good, i); good != (err == nil) {
					t.Errorf("GID %d (%s): %v", i, c.table[i], err)
				}
				if err != nil && (!errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), fmt.Sprintf("GID index %d is ", i))) {
					t.Errorf("GID %d: %v", i, err)
				}
				check(t, s.qp.Close())
			}
			if p := must(h.ctx.QueryPort(1)); p.State != ib.PortActive || p.ActiveMTU != ib.MTU1024 || p.LinkLayer != 2 || p.Flags&1 == 0 ||
				p.NetdevIfindex != uint32(a.eth().Attrs().Index) || p.MaxMTU != ib.MTU4096 {
				t.Errorf("%+v", p)
			}
		})
	}
}
