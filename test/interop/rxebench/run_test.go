package main

import (
	"math"
	"strings"
	"testing"
)

const bandwidthOutput = `@ticks cpu  100 0 200 300 0 0 10 0 0 0 5 7
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1200             0.00               37.50  		   0.000600
---------------------------------------------------------------------------------------
@ticks cpu  150 0 230 310 0 0 20 0 0 0 25 17
`

const latencyOutput = `@ticks cpu  0 0 0 0 0 0 0 0 0 0 0 0
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       300          397.10        5000.00      909.25  	       1000.00     	100.00		2000.00 		5000.00
@ticks cpu  0 0 0 50 0 0 0 0 0 0 0 0
`

func TestFigures(t *testing.T) {
	r, err := figures(test{Program: "ib_write_bw", Size: 65536}, bandwidthOutput)
	if want := (usage{User: 0.5, System: 0.3, IRQ: 0.1, Idle: 0.1, Daemon: 0.3}); err != nil || r.Value != 37.5 || r.Client != want {
		t.Errorf("bandwidth: %+v, %v", r, err)
	}
	r, err = figures(test{Program: "ib_send_lat", Size: 2}, latencyOutput)
	if err != nil || r.Value != 909.25 || r.Minimum != 397.1 || r.Client.Idle != 1 {
		t.Errorf("latency: %+v, %v", r, err)
	}
	// perftest divides by a clock that it could not measure.
	for _, text := range []string{
		strings.ReplaceAll(latencyOutput, "909.25", "inf"),
		strings.ReplaceAll(latencyOutput, "100.00", "-nan"),
		"no figures",
	} {
		if r, err := figures(test{Program: "ib_send_lat", Size: 2}, text); err == nil {
			t.Errorf("%q gives %+v", text, r)
		}
	}
	if _, err := figures(test{Program: "ib_write_bw", Size: 65536}, strings.ReplaceAll(bandwidthOutput, "37.50", "0.00")); err == nil {
		t.Error("no bandwidth is one")
	}
	if _, err := figures(test{Program: "ib_write_bw", Size: 65536}, strings.ReplaceAll(bandwidthOutput, "@ticks", "")); err == nil {
		t.Error("there are no ticks")
	}
}

func TestJudge(t *testing.T) {
	runs := func(values ...float64) (all []run) {
		for _, v := range values {
			all = append(all, run{Value: v})
		}
		return all
	}
	for _, tc := range []struct {
		program      string
		theirs, ours []float64
		ratio        float64
		reached      bool
	}{
		{"ib_send_bw", []float64{10, 30, 20}, []float64{50, 30}, 2, true},
		{"ib_send_bw", []float64{20}, []float64{39}, 1.95, false},
		{"ib_send_lat", []float64{20}, []float64{20}, 1, true},
		{"ib_send_lat", []float64{20}, []float64{21}, 1.05, false},
		{"ib_send_lat", nil, []float64{21}, 0, false},
	} {
		r := &result{Test: test{Program: tc.program}, RXE: runs(tc.theirs...), Softnicd: runs(tc.ours...)}
		r.judge()
		if math.Abs(r.Ratio-tc.ratio) > 1e-9 || r.Reached != tc.reached {
			t.Errorf("%+v: ratio %v, reached %v", tc, r.Ratio, r.Reached)
		}
	}
}

func TestTests(t *testing.T) {
	if all, here := len(tests(false, "")), len(tests(true, "")); all != 18 || here != 9 {
		t.Errorf("%d tests, %d of them in one machine", all, here)
	}
	if chosen := tests(false, "a-b ib_write_bw"); len(chosen) != 2 {
		t.Errorf("%v", chosen)
	}
	if m := (options{MTU: 1500}).pathMTU(); m != 1024 {
		t.Errorf("path MTU %d", m)
	}
}
