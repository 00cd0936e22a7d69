//go:build race

package wire

// raceEnabled: sync.Pool drops what it is given at random under the race detector.
const raceEnabled = true
