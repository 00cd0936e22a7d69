// Plots draws what test/bench has measured: throughput and latency against the size of messages, the number of queue pairs,
// loss, and shards. make plots runs both.
//
// It is a module of its own, so that a library for drawing is no dependency of the device.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// curve is one line of a figure, as test/bench writes it.
type curve struct {
	Figure string  `json:"figure"`
	Series string  `json:"series"`
	Points []point `json:"points"`
}

type point struct {
	X    float64 `json:"x"`
	Gbit float64 `json:"gbit_per_s"`
	Msg  float64 `json:"msg_per_s"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

// figure is a picture of two panels.
type figure struct {
	name  string
	x     string
	scale axis
	left  panel
	right panel
}

// panel shows values of all curves.
type panel struct {
	title string
	y     string
	scale axis
	lines []line
}

// line is which value of a point is shown, dashed or not; the legend has the colours of those that are not.
type line struct {
	of     func(*point) float64
	dashed bool
}

func gbit(p *point) float64 { return p.Gbit }
func p50(p *point) float64  { return p.P50 }
func p99(p *point) float64  { return p.P99 }
func msg(p *point) float64  { return p.Msg / 1e6 }

var (
	throughput = panel{"Throughput", "Gbit/s", plainAxis, []line{{of: gbit}}}
	rate       = panel{"Throughput", "million messages a second", countAxis, []line{{of: msg}}}
	completion = panel{"Post to completion: median, dashed 99 %", "", timeAxis, []line{{of: p50}, {p99, true}}}
)

var figures = []figure{
	{"size", "bytes of a message", bytesAxis, panel{"SEND, one queue pair: throughput", "Gbit/s", countAxis, []line{{of: gbit}}},
		panel{"Half a round trip: median, dashed 99 %", "", timeAxis, []line{{of: p50}, {p99, true}}}},
	{"qps", "queue pairs", countAxis, throughput, completion},
	{"loss", "packets lost, %", plainAxis, throughput, completion},
	{"shards", "shards of each daemon", wholeAxis, rate, completion},
}

func main() {
	in := flag.String("in", "", "file that test/bench -scale has written")
	out := flag.String("out", ".", "directory of the pictures")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	text, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var all []curve
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for i := range figures {
		f := &figures[i]
		if err := f.write(all, filepath.Join(out, "scale-"+f.name+".svg")); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

const (
	width  = 26 * vg.Centimeter
	height = 10 * vg.Centimeter
)

// write draws both panels beside each other.
func (f *figure) write(all []curve, path string) error {
	row := make([]*plot.Plot, 0, 2)
	for _, p := range []*panel{&f.left, &f.right} {
		drawn, err := f.draw(p, all)
		if err != nil {
			return err
		}
		row = append(row, drawn)
	}
	canvas := vgsvg.New(width, height)
	both := [][]*plot.Plot{row}
	tiles := plot.Align(both, draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadRight: vg.Millimeter * 4, PadTop: vg.Millimeter * 2}, draw.New(canvas))
	for i, p := range row {
		p.Draw(tiles[0][i])
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// Colours that are told apart by people who do not see all of them.
var colours = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}}

func (f *figure) draw(p *panel, all []curve) (*plot.Plot, error) {
	d := plot.New()
	d.Title.Text, d.X.Label.Text, d.Y.Label.Text = p.title, f.x, p.y
	d.Add(plotter.NewGrid())
	d.Title.TextStyle.Font.Size = 11
	d.Legend.Top, d.Legend.Left = true, true
	d.Legend.TextStyle.Font.Size = 9
	d.Legend.Padding = vg.Millimeter
	colour := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.Figure != f.name {
			continue
		}
		if _, known := colour[c.Series]; !known {
			colour[c.Series] = len(colour)
		}
		for _, l := range p.lines {
			xys := l.points(c)
			if len(xys) == 0 {
				continue
			}
			drawn, dots, err := plotter.NewLinePoints(xys)
			if err != nil {
				return nil, err
			}
			drawn.Color = colours[colour[c.Series]%len(colours)]
			drawn.Width = vg.Points(1.5)
			if l.dashed {
				drawn.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
			}
			dots.Color, dots.Radius, dots.Shape = drawn.Color, vg.Points(1.5), draw.CircleGlyph{}
			d.Add(drawn, dots)
			if !l.dashed {
				d.Legend.Add(c.Series, drawn)
			}
		}
	}
	f.scale.put(&d.X)
	p.scale.put(&d.Y)
	if p.scale != plainAxis {
		d.Y.Max *= math.Pow(d.Y.Max/d.Y.Min, 0.3) // room for the legend
	} else {
		d.Y.Min, d.Y.Max = 0, d.Y.Max*1.3
	}
	return d, nil
}

// points are those of a curve that have the value; on an axis of logarithms there is no place for 0.
func (l *line) points(c *curve) (xys plotter.XYs) {
	for i := range c.Points {
		if y := l.of(&c.Points[i]); y > 0 {
			xys = append(xys, plotter.XY{X: c.Points[i].X, Y: y})
		}
	}
	return xys
}
