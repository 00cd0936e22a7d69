// Softnicd is an RDMA NIC in software: a daemon that is the HCA, and the commands around it.
//
//	softnicd demo       two devices on loopback, two applications, every operation, a ladder diagram
//	softnicd run        the daemon, in the foreground
//	softnicd exec       an unmodified verbs program: -- PROGRAM ARGS
//	softnicd libs       the libraries that such programs load
//	softnicd devinfo    devices and ports, as ibv_devinfo prints them
//	softnicd cq         completion queues, and how deep each should be
//	softnicd status     devices, ports, objects, rates and counters, once
//	softnicd top        the same, live
//	softnicd events     what happens, as a stream
//	softnicd perf       bandwidth, latency and message rate, with perftest's columns
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 the port or the socket is taken, the interface is not there, or a right is wanting.
// Those of exec are its program's: 126 if it cannot be run, 127 if it is not there, 128 and the signal that killed it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	exitTaken  = 3
)

// exitError carries an exit code with an error.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{exitUsage, err} }
func taken(err error) error { return &exitError{exitTaken, err} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var end programEnd
	if errors.As(err, &end) {
		return int(end) // it has spoken for itself
	}
	fmt.Fprintln(os.Stderr, "softnicd:", err)
	var coded *exitError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "softnicd",
		Short:         "An RDMA NIC in software: real RoCEv2 on UDP 4791, no kernel module, no root",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() }, // a word that is no command is an argument
	}
	wrapArgs(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w\nSee '%s --help'", err, c.CommandPath()))
	})
	root.AddCommand(newRun(), newExec(), newLibs(), newDemo(), newDemoApp(), newDevinfo(), newPerf(), newCQ(), newStatus(), newTop(), newEvents())
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs makes an error about arguments a usage error.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(fmt.Errorf("%w\nSee '%s --help'", err, c.CommandPath()))
		}
		return nil
	}
}
