package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(args []string, out, help io.Writer) error {
	var c config
	var output string
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.SetOutput(help)
	f.IntVar(&c.clients, "clients", 100, "connections")
	f.IntVar(&c.sq, "sq", 64, "depth of each send queue of the gateway; a power of two, or the next one")
	f.IntVar(&c.rq, "rq", 64, "depth of each receive queue; a client sends as many requests at a time")
	f.IntVar(&c.cq, "cq", 0, "entries of the gateway's completion queue; 0 means clients x (sq + rq)")
	f.StringVar(&c.reclaim, "reclaim", "poll", "when a send slot comes back: poll, as on hardware, or completion, as with Linux rxe")
	f.BoolVar(&c.repost, "repost", true, "the consumer posts receives again")
	f.IntVar(&c.retries, "rnr-retry", 3, "RNR retries of the clients, 1 to 6")
	f.StringVar(&output, "o", "text", "text or json")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag", f.Arg(0))
	}
	if output != "text" && output != "json" {
		return fmt.Errorf("-o %s: text or json expected", output)
	}
	r, err := tell(c)
	if err != nil {
		return err
	}
	if output == "json" {
		return r.json(out)
	}
	r.text(out, &c)
	return nil
}

// check judges the flags, and makes depths what the device makes of them.
func (c *config) check() error {
	switch {
	case c.clients < 1 || c.clients > 4096:
		return fmt.Errorf("-clients %d: 1 to 4096 expected", c.clients)
	case c.sq < 1 || c.sq > 1024 || c.rq < 1 || c.rq > 1024:
		return fmt.Errorf("-sq %d -rq %d: 1 to 1024 expected", c.sq, c.rq)
	case c.reclaim != "poll" && c.reclaim != "completion":
		return fmt.Errorf("-reclaim %s: poll or completion expected", c.reclaim)
	case c.retries < 1 || c.retries > 6:
		return fmt.Errorf("-rnr-retry %d: 1 to 6 expected; with 7 a client waits for ever", c.retries)
	}
	c.sq, c.rq = depth(c.sq), depth(c.rq)
	if c.cq == 0 {
		c.cq = c.clients * (c.sq + c.rq)
	}
	return nil
}

// depth returns the real depth of a queue for one that was asked for.
func depth(n int) int {
	d := 1
	for d < n {
		d *= 2
	}
	return d
}
