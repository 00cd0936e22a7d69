package rc_test

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// CVE-2022-49929: a region, or a window, that a request named stayed referenced when the answer was an RNR NAK. Here nothing
// of the request is kept: the region goes, and the request that comes again finds no key.
func TestNothingIsHeldBehindAnRNRNak(t *testing.T) {
	play(t, []script{
		{"region", "reference 4.9", func(s *peerScript) {
			s.deliver(s.writeOnlyImm(100, 0, 8, 7))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			if err := s.table.Remove(s.mr); err != nil {
				s.t.Fatal(err)
			}
			s.post(1, 0)
			s.deliver(s.writeOnlyImm(100, 0, 8, 7))
			s.untouched(0, 8)
			s.dies(nak(100, wire.NakRemoteAccess, 0))
			s.completed(failed(1, ib.WCLocAccessErr, transport.VendorBadKey))
		}},
		{"window", "reference 4.9", func(s *peerScript) {
			w := s.window(ib.MWType2)
			k := s.bound(w, 1)
			s.deliver(s.writeOnlyImm(100, windowOff, 8, 7).keyed(k))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			s.table.RemoveWindow(w)
			if err := s.table.Remove(s.mr); err != nil {
				s.t.Fatal(err)
			}
			s.post(1, 0)
			s.deliver(s.writeOnlyImm(100, windowOff, 8, 7).keyed(k))
			s.dies(nak(100, wire.NakRemoteAccess, 0))
			s.completed(failed(1, ib.WCLocAccessErr, transport.VendorBadKey))
		}},
	})
}
