package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// demoOptions are the choices of `softnicd demo`.
type demoOptions struct {
	local   bool
	ipv6    bool
	mr      string
	capture string
	output  string
	port    uint16
	link    linkKind
}

// demoLimit bounds the whole conversation: it takes well below a second.
const demoLimit = 20 * time.Second

func newDemo() *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "One RC conversation between two processes, every operation, with a ladder diagram",
		Long: `Starts a daemon with two devices on loopback addresses and two applications that talk over them: SEND, SEND with
immediate, RDMA WRITE, WRITE with immediate, READ, compare-and-swap, fetch-and-add, and one deliberate failure. It prints
every completion and every packet, checks every byte, and exits 1 if anything differs. It needs no root, no kernel
module and no configuration.`,
		RunE: func(c *cobra.Command, _ []string) error { return runDemo(c.Context(), &o, c.OutOrStdout()) },
	}
	c.Flags().BoolVar(&o.local, "local", false, "let both queue pairs share one device and the local link")
	c.Flags().BoolVar(&o.ipv6, "ipv6", false, "talk over IPv6: there is one such address on loopback, ::1, so both queue pairs share the device that has it")
	c.Flags().Var(&o.link, "link", "how packets travel between the devices: udp, or raw, which needs CAP_NET_RAW (default udp)")
	c.Flags().StringVar(&o.mr, "mr", "shared", "memory that the applications register: shared, or process (their own, which the device reaches by system calls)")
	c.Flags().StringVar(&o.capture, "capture", "", "keep the packets in this pcapng file")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	c.Flags().Uint16Var(&o.port, "port", 4791, "UDP port of both devices")
	return c
}

func runDemo(ctx context.Context, o *demoOptions, out io.Writer) error {
	if o.output != "text" && o.output != "json" {
		return usage(fmt.Errorf("-o %s: text or json expected", o.output))
	}
	if o.mr != "shared" && o.mr != "process" {
		return usage(fmt.Errorf("--mr %s: shared or process expected", o.mr))
	}
	o.local = o.local || o.ipv6
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "softnicd-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	file := o.capture
	if file == "" {
		file = filepath.Join(dir, "demo.pcapng")
	}
	daemon, err := startDaemon(ctx, o, dir, file)
	if err != nil {
		return err
	}
	defer daemon.kill()
	reports, err := runApps(ctx, o, dir)
	if err != nil {
		return err
	}
	if err := daemon.stop(); err != nil {
		return fmt.Errorf("the daemon: %w", err)
	}
	r := &demoReport{Link: linkName(o), Memory: o.mr, Applications: reports}
	if r.Packets, err = readPackets(file, reports); err != nil {
		return err
	}
	r.judge()
	if o.output == "json" {
		if err := writeJSON(out, r); err != nil {
			return err
		}
	} else {
		r.print(out)
		if o.capture != "" {
			fmt.Fprintf(out, "\n%s has the packets: tshark -r %s -O infiniband\n", o.capture, o.capture)
		}
	}
	if !r.OK {
		return errors.New("demo: what happened is not what should have; see above")
	}
	return nil
}

// address is the first device's.
func (o *demoOptions) address() string {
	if o.ipv6 {
		return "::1"
	}
	return "127.0.0.1"
}

func linkName(o *demoOptions) string {
	if o.local {
		return "local"
	}
	return string(cmp.Or(o.link, linkUDP))
}

func startDaemon(ctx context.Context, o *demoOptions, dir, capture string) (*process, error) {
	args := []string{"--capture", capture, "--log-level", "warn", "--port", fmt.Sprint(o.port), "--device", "softnic0=" + o.address(),
		"--link", string(cmp.Or(o.link, linkUDP))}
	if !o.local {
		args = append(args, "--device", "softnic1=127.0.0.2")
	}
	return startRun(ctx, filepath.Join(dir, "softnicd.sock"), args...)
}

// runApps runs receiver and sender and returns what they saw, the sender first.
func runApps(ctx context.Context, o *demoOptions, dir string) ([]*appReport, error) {
	devices := [2]string{"softnic0", "softnic1"}
	if o.local {
		devices[1] = "softnic0"
	}
	var apps [2]*process
	var outputs [2]bytes.Buffer
	for i, role := range []string{"sender", "receiver"} {
		p, err := start(ctx, &outputs[i], "demo-app", "--role", role, "--mr", o.mr, "--device", devices[i],
			"--socket", filepath.Join(dir, "softnicd.sock"), "--exchange", filepath.Join(dir, "exchange.sock"))
		if err != nil {
			return nil, err
		}
		defer p.kill()
		apps[i] = p
	}
	var failed error
	for i, p := range apps {
		err := <-p.done
		p.done <- err
		if err != nil && failed == nil {
			failed = p.fail([]string{"sender", "receiver"}[i], err)
			for _, other := range apps {
				other.cmd.Process.Kill() // a peer that waits for the failed one would wait for ever
			}
		}
	}
	if failed != nil {
		return nil, failed
	}
	reports := make([]*appReport, 2)
	for i := range outputs {
		if err := json.Unmarshal(outputs[i].Bytes(), &reports[i]); err != nil {
			return nil, fmt.Errorf("what an application reported: %w", err)
		}
	}
	return reports, nil
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
