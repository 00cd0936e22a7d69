package ctl

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// random sets every field to something that its type holds.
func random(v reflect.Value, rng *rand.Rand) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 1)
	case reflect.Struct:
		for i := range v.NumField() {
			random(v.Field(i), rng)
		}
	default:
		fill(v, rng)
	}
}

// What goes into a message comes out of it: a field that a conversion forgets is 0 afterwards.
func TestConversionsKeepEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var d ib.DeviceAttr
		random(reflect.ValueOf(&d).Elem(), rng)
		dm := FromDeviceAttr(&d)
		if got, err := ToDeviceAttr(&dm); err != nil || got != d {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, d)
		}

		var p ib.PortAttr
		random(reflect.ValueOf(&p).Elem(), rng)
		pm := FromPortAttr(&p)
		if got, err := ToPortAttr(&pm); err != nil || got != p {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, p)
		}

		var q ib.QPAttr
		random(reflect.ValueOf(&q).Elem(), rng)
		q.Cap, q.AH.DLID, q.AH.SrcPathBits = ib.QPCap{}, 0, 0 // do not travel
		qm := FromQPAttr(&q)
		if got, err := ToQPAttr(&qm); err != nil || got != q {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, q)
		}
	}
}

// A value that the attribute's type cannot hold is refused; it never turns into another one.
func TestWideValuesAreRefused(t *testing.T) {
	check := func(m any, convert func() (any, error), back func(any) any) {
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() != reflect.Uint32 {
				continue
			}
			for _, wide := range []uint64{2, 1 << 8, 1 << 16, 1<<32 - 1} {
				v.SetZero()
				f.SetUint(wide)
				got, err := convert()
				if err != nil {
					if !errors.Is(err, syscall.EINVAL) {
						t.Errorf("%s %d: %v", v.Type().Field(i).Name, wide, err)
					}
					continue
				}
				if back(got) != v.Interface() {
					t.Errorf("%v.%s %#x became something else", v.Type(), v.Type().Field(i).Name, wide)
				}
			}
		}
	}
	var q QPAttr
	check(&q, func() (any, error) { return ToQPAttr(&q) }, func(a any) any { x := a.(ib.QPAttr); return FromQPAttr(&x) })
	var p QueryPortReply
	check(&p, func() (any, error) { return ToPortAttr(&p) }, func(a any) any { x := a.(ib.PortAttr); return FromPortAttr(&x) })
}

func TestCaps(t *testing.T) {
	c := ib.QPCap{MaxSendWR: 1, MaxRecvWR: 2, MaxSendSGE: 3, MaxRecvSGE: 4, MaxInlineData: 5}
	for _, m := range []interface {
		Cap() ib.QPCap
		SetCap(ib.QPCap)
	}{&CreateQP{}, &CreateQPReply{}, &QueryQPReply{}} {
		if m.SetCap(c); m.Cap() != c {
			t.Errorf("%T: %+v", m, m.Cap())
		}
	}
}
