package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// host tells what the processors beneath the machines did: figures from a loaded host are of little use.
type host struct {
	machines []*machine
	all      float64   // ticks of all processors
	idle     float64   // of them
	took     []float64 // by each machine's QEMU
}

func newHost(p *pair) *host {
	h := &host{machines: p.machines()}
	h.all, h.idle, h.took = h.now()
	return h
}

// now reads the ticks until now. What cannot be read counts as nothing.
func (h *host) now() (all, idle float64, took []float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimPrefix(line, "cpu ")
	for i, v := range allNumbers(line) {
		if i < 8 {
			all += v
		}
		if i == 3 || i == 4 {
			idle += v
		}
	}
	for _, m := range h.machines {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid))
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		v := 0.0
		if len(fields) > 12 { // utime and stime are the 14th and the 15th of the line, whose first two were cut off
			if n := allNumbers(fields[11] + " " + fields[12]); n != nil {
				v = n[0] + n[1]
			}
		}
		took = append(took, v)
	}
	return all, idle, took
}

// hostLoad is in processors.
type hostLoad struct {
	Processors int       `json:"processors"`
	Machines   []float64 `json:"machines"` // what each took
	Others     float64   `json:"others"`   // what everything else took
}

// load is the means since the beginning.
func (h *host) load() hostLoad {
	all, idle, took := h.now()
	l := hostLoad{Processors: runtime.NumCPU()}
	scale := float64(l.Processors) / max(all-h.all, 1)
	l.Others = (all - h.all - (idle - h.idle)) * scale
	for i := range took {
		v := (took[i] - h.took[i]) * scale
		l.Machines = append(l.Machines, v)
		l.Others -= v
	}
	l.Others = max(l.Others, 0)
	return l
}
