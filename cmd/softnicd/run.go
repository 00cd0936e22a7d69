package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/control"
	"github.com/softnic/softnicd/link/capture"
	"github.com/softnic/softnicd/link/netdev"
	"github.com/softnic/softnicd/verbs"
)

// drainLimit bounds how long applications are given to see the end of the daemon. What control gives their sessions to end
// comes on top.
const drainLimit = 1500 * time.Millisecond

func newRun() *cobra.Command {
	var cfg config
	var profile string
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Long: `Runs the NIC for any number of applications, as an ordinary user. Without --device every network interface that is up
gets a device, loopback included: softnic0, softnic1 and so on. SIGTERM drains: queue pairs go to the error state,
applications see their work flushed and DEVICE_FATAL, and the daemon exits 0: within 2 s, or within 7 s where the sessions
of applications are slow to end, as with a great deal of memory on a busy host.

Each flag has a key of the same name in the --config file and a variable SOFTNICD_NAME; flags come first, variables
second. Under systemd, readiness and socket activation (ListenSequentialPacket=) work.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cfg.load(c.Flags()); err != nil {
				return err
			}
			stop, err := profileCPU(profile)
			if err != nil {
				return err
			}
			return errors.Join(cfg.run(c.Context()), stop())
		},
	}
	cfg.flags(c.Flags())
	c.Flags().StringVar(&profile, "cpuprofile", "", "write a CPU profile to this file, for `go tool pprof`")
	_ = c.Flags().MarkHidden("cpuprofile")
	return c
}

// run is the life of the daemon, until ctx ends.
func (c *config) run(ctx context.Context) (err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return usage(fmt.Errorf("log-level %q: debug, info, warn or error expected", c.LogLevel))
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))

	listener, path, err := c.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	file, err := c.openCapture()
	if err != nil {
		return err
	}
	if file != nil {
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	devices, err := c.openDevices(file, log)
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range devices {
			err = errors.Join(err, d.close())
		}
	}()
	// Closed before the devices are: nothing refreshes what is gone.
	watching, stop := context.WithCancel(ctx)
	defer stop()
	done, err := watch(watching, devices, log)
	if err != nil {
		return err
	}
	defer func() { stop(); <-done }()

	served := make([]*control.Device, len(devices))
	for i, d := range devices {
		d.nic.Start()
		served[i] = &control.Device{NIC: d.nic, Page: d.page}
		log.Info("device", "name", d.spec.Device, "on", d.spec.Target)
	}
	server, err := control.New(control.Config{Devices: served, Log: log})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	log.Info("ready", "socket", path)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	log.Info("draining")
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	limited, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := server.Shutdown(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// listen makes the control socket, or takes systemd's.
func (c *config) listen() (*net.UnixListener, string, error) {
	files := activation.Files(true)
	switch {
	case len(files) > 1:
		return nil, "", usage(fmt.Errorf("systemd passed %d sockets, one is served", len(files)))
	case len(files) == 1:
		l, err := control.ListenFile(files[0])
		return l, files[0].Name(), err
	}
	path := c.Socket
	if path == "" {
		path = defaultSocket()
	}
	l, err := control.Listen(path)
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EEXIST) {
		return nil, "", taken(err)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, "", fmt.Errorf("%w; make the directory or choose another path with --socket", err)
	}
	return l, path, err
}

// defaultSocket is where applications look, except that a daemon makes the socket which they only find.
func defaultSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && os.Getenv("SOFTNICD_SOCKET") == "" {
		return dir + "/softnicd.sock"
	}
	path := verbs.SocketPath()
	if os.Geteuid() == 0 {
		_ = os.MkdirAll("/run/softnicd", 0o750)
	}
	return path
}

// openCapture makes the capture file if one is wanted.
func (c *config) openCapture() (*captureFile, error) {
	if c.Capture == "" {
		return nil, nil
	}
	f, err := os.Create(c.Capture)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	buffered := bufio.NewWriterSize(f, 1<<16)
	packets, err := capture.New(buffered, capture.Config{Live: true})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("capture: %w", err)
	}
	return &captureFile{File: packets, buffer: buffered, file: f}, nil
}

// captureFile is a capture with the file it goes to.
type captureFile struct {
	*capture.File
	buffer *bufio.Writer
	file   *os.File
}

// Close writes what is left. An incomplete capture is an error of its own.
func (f *captureFile) Close() error {
	return errors.Join(f.File.Close(), f.buffer.Flush(), f.file.Close())
}

func (c *config) openDevices(file *captureFile, log *slog.Logger) ([]*device, error) {
	specs, err := c.specs()
	if err != nil {
		return nil, err
	}
	var packets *capture.File
	if file != nil {
		packets = file.File
	}
	var devices []*device
	for _, spec := range specs {
		d, err := c.open(spec, packets, log)
		if err != nil {
			for _, d := range devices {
				_ = d.close()
			}
			return nil, err
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// watch keeps the devices informed about their interfaces until ctx ends; then the channel is closed.
func watch(ctx context.Context, devices []*device, log *slog.Logger) (<-chan struct{}, error) {
	events, err := netdev.Watch(ctx)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, d := range devices {
			d.refresh(log) // of what changed since it was opened
		}
		for e := range events {
			for _, d := range devices {
				if e.Index == 0 || d.index == 0 || e.Index == d.index {
					d.refresh(log)
				}
			}
		}
	}()
	return done, nil
}
