package verbs

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/softnic/softnicd/abi/ctl"
)

// DeviceInfo is a device that can be opened.
type DeviceInfo struct {
	Name     string
	NodeGUID uint64
}

// Option says how to reach the daemon.
type Option func(*options)

type options struct{ socket string }

// socketVariable names the control socket.
const socketVariable = "SOFTNICD_SOCKET"

// WithSocket names the daemon's control socket. Without it that is $SOFTNICD_SOCKET, else softnicd.sock in
// $XDG_RUNTIME_DIR if there is one, else /run/softnicd/softnicd.sock.
func WithSocket(path string) Option { return func(o *options) { o.socket = path } }

// SocketPath returns the control socket that Open uses by default.
func SocketPath() string {
	if p := os.Getenv(socketVariable); p != "" {
		return p
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		p := filepath.Join(dir, "softnicd.sock")
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return "/run/softnicd/softnicd.sock"
}

func connect(opts []Option) (*socketConn, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	if o.socket == "" {
		o.socket = SocketPath()
	}
	return dial(o.socket)
}

// Devices lists the devices of the daemon, as ibv_get_device_list does. The error wraps ErrNoDaemon if there is none.
func Devices(opts ...Option) ([]DeviceInfo, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return ListDevices(c)
}

// ListDevices lists the devices at the other end of a connection.
func ListDevices(c ctl.Conn) ([]DeviceInfo, error) {
	var list []DeviceInfo
	for {
		var r ctl.ListDevicesReply
		if _, err := c.Call(ctl.OpListDevices, &ctl.ListDevices{First: uint32(len(list))}, &r); err != nil {
			return nil, err
		}
		n := min(int(r.N), len(r.Names))
		for i := range n {
			list = append(list, DeviceInfo{Name: text(r.Names[i][:]), NodeGUID: r.GUIDs[i]})
		}
		if n == 0 || len(list) >= int(r.Count) {
			return list, nil
		}
	}
}

// Open opens a device of the daemon; an empty name means its first one. The error wraps ErrNoDaemon if there is no daemon.
func Open(name string, opts ...Option) (*Context, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	ctx, err := OpenConn(c, name)
	if err != nil {
		c.Close()
	}
	return ctx, err
}

// text returns a zero-padded name.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
