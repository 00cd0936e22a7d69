package main

import (
	"math"
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are as wide as a 64th of an octave, so that percentiles are right within
// 1.6 %, however long the run; below 64 ns they are exact.
type histogram struct {
	counts   [bucketCount]uint64
	n        uint64
	sum      float64 // ns
	squares  float64
	min, max int64
}

const (
	bucketBits  = 6
	bucketsIn   = 1 << bucketBits // buckets of an octave
	bucketCount = bucketsIn * (64 - bucketBits)
)

// bucketOf returns the index of the bucket that v, not negative, falls in.
func bucketOf(v int64) int {
	if v < bucketsIn {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - bucketBits - 1
	return shift<<bucketBits + int(v>>shift)
}

// bucketLow returns the least value of a bucket.
func bucketLow(i int) int64 {
	if i < 2*bucketsIn {
		return int64(i)
	}
	shift := i>>bucketBits - 1
	return int64(i-shift<<bucketBits) << shift
}

// add counts a duration.
func (h *histogram) add(d time.Duration) {
	v := max(int64(d), 0)
	h.counts[bucketOf(v)]++
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.n++
	h.sum += float64(v)
	h.squares += float64(v) * float64(v)
}

// quantile returns, in microseconds, what a share q of all durations does not exceed: the nearest rank, at the middle of
// its bucket. 0 if there are none.
func (h *histogram) quantile(q float64) float64 {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	seen := uint64(0)
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			v := (bucketLow(i) + bucketLow(i+1) - 1) / 2
			return micro(min(max(v, h.min), h.max))
		}
	}
	return micro(h.max)
}

func (h *histogram) mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n) / 1e3
}

func (h *histogram) stdev() float64 {
	if h.n < 2 {
		return 0
	}
	n := float64(h.n)
	return math.Sqrt(max(h.squares-h.sum*h.sum/n, 0)/(n-1)) / 1e3
}

// histogramBin is a line of the drawn histogram: durations from one power of two's eighth to the next.
type histogramBin struct {
	From  float64 `json:"from_us"`
	To    float64 `json:"to_us"`
	Count uint64  `json:"count"`
}

// bins returns the histogram in quarters of octaves, from the first that is not empty to the last.
func (h *histogram) bins() []histogramBin {
	const step = bucketsIn / 4
	bins := []histogramBin{}
	for i := 0; i < bucketCount && h.n > 0; i += step {
		b := histogramBin{From: micro(bucketLow(i)), To: micro(bucketLow(min(i+step, bucketCount-1)))}
		for _, c := range h.counts[i : i+step] {
			b.Count += c
		}
		if b.Count > 0 || len(bins) > 0 {
			bins = append(bins, b)
		}
	}
	for len(bins) > 0 && bins[len(bins)-1].Count == 0 {
		bins = bins[:len(bins)-1]
	}
	return bins
}

func micro(ns int64) float64 { return float64(ns) / 1e3 }
