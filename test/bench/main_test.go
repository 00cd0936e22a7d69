package main

import (
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.in, got, c.want)
		}
	}
}

// A line names the verdict that its ratio deserves, whichever direction is the better one.
func TestLine(t *testing.T) {
	const with = "something"
	for _, c := range []struct {
		r               row
		path, yardstick float64
		want            string
	}{
		{row{floor: 1, aim: 1.3, yardstick: with}, 13, 10, "1.30 | 1 | 1.3 | reaches the aim"},
		{row{floor: 1, aim: 1.3, yardstick: with}, 12, 10, "1.20 | 1 | 1.3 | above the floor"},
		{row{floor: 1, aim: 1.3, yardstick: with}, 9, 10, "0.90 | 1 | 1.3 | below the floor"},
		{row{floor: 3.5, aim: 2.5, yardstick: with, lower: true}, 20, 10, "2.00 | 3.5 | 2.5 | reaches the aim"},
		{row{floor: 3.5, aim: 2.5, yardstick: with, lower: true}, 40, 10, "4.00 | 3.5 | 2.5 | below the floor"},
		{row{floor: 3, aim: 5}, 4, 0, "|  | 3 | 5 | above the floor"},
	} {
		at := &measured{near: {[]float64{c.path}, []float64{c.yardstick}}}
		if got := c.r.line(at, new(stage)); !strings.Contains(got, c.want) {
			t.Errorf("line %q, want %q in it", got, c.want)
		}
	}
}

// Rounds with the processors near one another and those with the processors apart are never mixed, and a round during which
// they moved counts as neither.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		taken []float64
		want  distance
	}{{[]float64{7, 8, 7}, near}, {[]float64{28, 27, 30}, far}, {[]float64{7, 28, 28}, moved}, {[]float64{28, 28, 7}, moved}, {[]float64{28, 7, 28}, moved}} {
		if got := distanceOf(c.taken...); got != c.want {
			t.Errorf("%v: %v, want %v", c.taken, got, c.want)
		}
	}
	r := row{floor: 1, aim: 1.3, yardstick: "something"}
	at := &measured{near: {[]float64{12, 12}, []float64{10, 10}}, far: {[]float64{4.5}, []float64{5}}, moved: {[]float64{1, 1, 1}, []float64{100, 100, 100}}}
	for want, rounds := range map[string]*measured{
		"1.20 | 1 | 1.3 | above the floor; processors far apart: 0.90 in 1 of 3 rounds |":                  at,
		"0.90 | 1 | 1.3 | below the floor; processors far apart; processors near: 1.20 in 1 of 3 rounds |": {near: {[]float64{12}, []float64{10}}, far: {[]float64{4.5, 4.5}, []float64{5, 5}}},
		"0.01 | 1 | 1.3 | below the floor; processors moved |":                                             {moved: {[]float64{1}, []float64{100}}},
	} {
		if got := r.line(rounds, new(stage)); !strings.Contains(got, want) {
			t.Errorf("line %q, want %q in it", got, want)
		}
	}
}

func TestGoCopy(t *testing.T) {
	if v := goCopy(5 * time.Millisecond); v <= 0 {
		t.Errorf("%v Gbit/s", v)
	}
}
