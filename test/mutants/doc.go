// Mutants plants known bugs in the product, one at a time, and shows that something catches each: a packet script or
// another test of the package that is named beside it, and the simulator within a thousand seeds. A proof that never
// failed proves nothing; this is where it fails on purpose.
//
//	make mutants                              # every mutant, until something catches it
//	go run ./test/mutants -both               # and let scripts and simulator try each, whoever was first
//	go run ./test/mutants -only 'LOCAL_INV' -v
//
// A mutant is data: a file, a text that stands in it exactly once, and the wrong text for it. The mutated file lies in a
// temporary folder, and go test -overlay compiles it in the place of the real one. So the product has no hook for any of
// this: nothing to be compiled away, nothing that could be switched on in a binary by mistake, and no line that has to be
// read around. Files with a build tag would do the same with a copy of each function, and the copy would rot unseen; of a
// text that is gone, or stands there twice, the tests of this package tell in every ordinary run.
//
//	mutant.go     what a mutant is, and the overlay made of it
//	requester.go  the mutants, by what they
//	responder.go    spoil
//	services.go
//	lifetime.go
//	device.go
//	trial.go      building and running
//	table.go      what is printed
//	main.go       the command
package main
