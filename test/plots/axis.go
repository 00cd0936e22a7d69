package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"gonum.org/v1/plot"
)

// axis is how an axis counts.
type axis int

const (
	plainAxis axis = iota
	wholeAxis      // whole numbers
	countAxis      // powers of ten
	bytesAxis      // powers of two
	timeAxis       // microseconds, by powers of ten
)

func (a axis) put(x *plot.Axis) {
	switch a {
	case wholeAxis:
		x.Tick.Marker = plot.TickerFunc(whole)
	case countAxis:
		x.Scale, x.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	case bytesAxis:
		x.Scale, x.Tick.Marker = plot.LogScale{}, plot.TickerFunc(sizes)
	case timeAxis:
		x.Scale, x.Tick.Marker = plot.LogScale{}, plot.TickerFunc(times)
	}
}

func whole(low, high float64) (ticks []plot.Tick) {
	for v := math.Ceil(low); v <= high; v++ {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprint(v)})
	}
	return ticks
}

// decades has a label at each power of ten, and a mark at what is between them.
func decades(low, high float64) (ticks []plot.Tick) {
	for ten := math.Pow(10, math.Floor(math.Log10(low))); ten <= high; ten *= 10 {
		for k := 1.0; k < 10; k++ {
			if v := k * ten; v >= low*0.999 && v <= high*1.001 {
				label := ""
				// A short axis has few powers of ten.
				if k == 1 || high < 100*low && (k == 2 || k == 5) {
					label = fmt.Sprintf("%.6g", v)
				}
				ticks = append(ticks, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ticks
}

// times are decades of microseconds, with units.
func times(low, high float64) []plot.Tick {
	ticks := decades(low, high)
	for i := range ticks {
		if t := &ticks[i]; t.Label != "" {
			t.Label = strings.Replace(time.Duration(t.Value*float64(time.Microsecond)).Round(time.Nanosecond).String(), "µ", "u", 1)
		}
	}
	return ticks
}

// sizes has a mark at each power of two, and a label at every fourth.
func sizes(low, high float64) (ticks []plot.Tick) {
	for i := 0; math.Ldexp(1, i) <= high; i++ {
		if v := math.Ldexp(1, i); v >= low {
			t := plot.Tick{Value: v}
			switch {
			case i%4 != 1: // 2, 32, 512, 8Ki ...
			case i < 10:
				t.Label = fmt.Sprint(v)
			case i < 20:
				t.Label = fmt.Sprint(v/1024, "Ki")
			default:
				t.Label = fmt.Sprint(v/1048576, "Mi")
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
