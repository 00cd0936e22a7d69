package cq

// A word of shared memory that one side writes and the other reads. The two halves announce each touch to a test that
// wants to decide who goes first (explore_test.go); nothing else listens.
type word uint8

const (
	wordEntry word = iota // the device's: the sequence of an entry
	wordProduced
	wordState
	wordFired
	wordMoved
	wordConsumed // the application's
	wordArm
)
