package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// perfLocal runs both sides here: daemons, and a server process, are children; the client is this process.
func perfLocal(ctx context.Context, o *perfOptions, plans []perfPlan, out, screen io.Writer) error {
	addresses := []string{"127.0.0.1", "127.0.0.2"}
	switch o.local {
	case "daemons":
	case "device":
		addresses = addresses[:1]
	default:
		return usage(fmt.Errorf("--local=%s: daemons or device expected", o.local))
	}
	dir, err := os.MkdirTemp("", "softnicd-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sockets := make([]string, 2)
	var daemons []*process
	for i, a := range addresses {
		sockets[i] = filepath.Join(dir, fmt.Sprintf("softnicd%d.sock", i))
		d, err := startPerfDaemon(ctx, o, i, a, sockets[i])
		if err != nil {
			return err
		}
		defer d.kill()
		defer d.stop()
		daemons = append(daemons, d)
	}
	if o.local == "device" {
		sockets[1] = sockets[0]
	}
	exchange := filepath.Join(dir, "exchange.sock")
	server, err := start(ctx, nil, "perf", "--server", "--socket", sockets[1], "--exchange", exchange)
	if err != nil {
		return err
	}
	defer server.kill()
	meet := func(ctx context.Context) (*perfLink, error) {
		select {
		case err := <-server.done:
			server.done <- err
			return nil, server.fail("the server ended", err)
		default:
		}
		return dialPerf(ctx, "unix", exchange, 10*time.Second)
	}
	if err := perfMeasure(ctx, plans, perfHost{socket: sockets[0]}, meet, o.output, out, screen); err != nil {
		return blame(err, append(daemons, server))
	}
	select {
	case err := <-server.done:
		server.done <- err
		if err != nil {
			return server.fail("the server", err)
		}
		return nil
	case <-time.After(perfPatience):
		return fmt.Errorf("the server does not end")
	}
}

// blame prefers the reason why a child ended to what became of it here.
func blame(err error, children []*process) error {
	time.Sleep(50 * time.Millisecond) // it may be about to end
	for _, p := range children {
		select {
		case ended := <-p.done:
			p.done <- ended
			if ended != nil {
				return p.fail(fmt.Sprintf("%v, because a child (%v) ended", err, p.cmd.Args), ended)
			}
		default:
		}
	}
	return err
}

// startPerfDaemon starts a daemon with one device.
func startPerfDaemon(ctx context.Context, o *perfOptions, i int, address, socket string) (*process, error) {
	args := []string{"--log-level", "warn", "--port", fmt.Sprint(o.udpPort), "--device", "softnic0=" + address, "--shards", fmt.Sprint(o.shards)}
	if o.profile != "" {
		args = append(args, "--cpuprofile", fmt.Sprint(o.profile, i))
	}
	return startRun(ctx, socket, args...)
}
