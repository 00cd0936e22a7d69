package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// goCopy copies a mebibyte from one place to another again and again, as the device does for WRITEs between two queue
// pairs of one daemon: from one buffer to one other, a path MTU at a time. It returns Gbit/s.
func goCopy(length time.Duration) float64 {
	const size, piece = 1 << 20, 4096
	from, to := make([]byte, size), make([]byte, size)
	for i := range from {
		from[i] = byte(i)
	}
	n, began := 0, time.Now()
	for time.Since(began) < length {
		for at := 0; at < size; at += piece {
			copy(to[at:at+piece], from[at:at+piece])
		}
		n += size
	}
	return float64(n) * 8 / time.Since(began).Seconds() / 1e9
}

// runChild is the other process of a yardstick: it inherits a socket as descriptor 3.
func runChild(role, what string) bool {
	if role != "child" {
		return false
	}
	switch what {
	case "echo":
		echo(3)
	case "sink":
		sink(3)
	case "placer":
		placer(3)
	case "crowd":
		crowdMain()
	case "incast":
		incastMain()
	default:
		return false
	}
	return true
}

// udpSocket returns a socket on loopback and its address.
func udpSocket() (int, unix.Sockaddr, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, nil, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	a, err := unix.Getsockname(fd)
	return fd, a, err
}

// withChild runs a child that owns one socket, and do with another one that is connected to it.
func withChild(role string, do func(fd int, child *exec.Cmd, out io.Reader) (float64, error)) (float64, error) {
	theirs, address, err := udpSocket()
	if err != nil {
		return 0, err
	}
	file := os.NewFile(uintptr(theirs), role)
	defer file.Close()
	ours, _, err := udpSocket()
	if err != nil {
		return 0, err
	}
	defer unix.Close(ours)
	if err := unix.Connect(ours, address); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	c := exec.Command(self, "child", role)
	c.ExtraFiles, c.Stderr = []*os.File{file}, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	defer c.Wait()
	defer c.Process.Kill()
	return do(ours, c, out)
}

const pingBytes = 80 // a SEND of 2 bytes has about as many in IP

// udpPingPong returns the median round trip, in microseconds, of a datagram between two processes that spin.
func udpPingPong(length time.Duration) (float64, error) {
	return withChild("echo", func(fd int, _ *exec.Cmd, _ io.Reader) (float64, error) {
		b := make([]byte, pingBytes)
		var times []float64
		for began := time.Now(); time.Since(began) < length; {
			before := time.Now()
			if _, err := unix.Write(fd, b); err != nil {
				return 0, err
			}
			for {
				n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
				if n > 0 {
					break
				}
				if err != nil && !errors.Is(err, unix.EAGAIN) {
					return 0, err
				}
				if time.Since(before) > 5*time.Second {
					return 0, errors.New("no answer")
				}
			}
			times = append(times, float64(time.Since(before).Nanoseconds())/1e3)
		}
		return median(times), nil
	})
}

func echo(fd int) {
	b := make([]byte, pingBytes)
	for {
		n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if n > 0 {
			err = unix.Sendto(fd, b[:n], 0, from)
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return
		}
	}
}

// GSO groups of the blast: 15 datagrams of 4096 bytes of payload with RoCE headers.
const (
	blastHeader  = 12
	blastPayload = 4096
	blastSegment = blastHeader + blastPayload + wire.ICRCSize
	blastGroup   = 15
)

// gsoBlast sends UDP GSO groups as fast as it can to a process that receives them with GRO, and returns the Gbit/s that
// arrived. The receiver leaves them where they are, or is a placer and does with them what a NIC has to.
func gsoBlast(length time.Duration, receiver string, write func(fd int) error) (float64, error) {
	return withChild(receiver, func(fd int, c *exec.Cmd, out io.Reader) (float64, error) {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, blastSegment); err != nil {
			return 0, err
		}
		for began := time.Now(); time.Since(began) < length; {
			if err := write(fd); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
				return 0, err
			}
		}
		// An empty datagram, until the receiver has seen one.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0); err != nil {
			return 0, err
		}
		stop := time.AfterFunc(0, func() {
			for range 100 {
				_, _ = unix.Write(fd, nil)
				time.Sleep(5 * time.Millisecond)
			}
			c.Process.Kill()
		})
		defer stop.Stop()
		var gbit float64
		_, err := fmt.Fscan(out, &gbit)
		return gbit, err
	})
}

// bareBlast sends the same bytes again and again.
func bareBlast(length time.Duration) (float64, error) {
	b := make([]byte, blastGroup*blastSegment)
	return gsoBlast(length, "sink", func(fd int) error {
		_, err := unix.Write(fd, b)
		return err
	})
}

// summedBlast gathers a message of 1 MiB between headers and sums of it.
func summedBlast(length time.Duration) (float64, error) {
	const around = blastHeader + wire.ICRCSize // of a payload
	message, headers := make([]byte, 1<<20), make([]byte, blastGroup*around)
	for i := range message {
		message[i] = byte(i) // memory that nobody has written is one page of zeros
	}
	v, at := make([][]byte, 0, 3*blastGroup), 0
	return gsoBlast(length, "placer", func(fd int) error {
		v = v[:0]
		for i := range blastGroup {
			header, trailer := headers[i*around:][:blastHeader], headers[i*around+blastHeader:][:wire.ICRCSize]
			payload := message[at:][:blastPayload]
			at = (at + blastPayload) % len(message)
			wire.Checksum(0).BTH(header).Update(payload).Put(trailer)
			v = append(v, header, payload, trailer)
		}
		_, err := unix.Writev(fd, v)
		return err
	})
}

// sink counts what arrives until an empty datagram does.
func sink(fd int) { receiveBlast(fd, func([]byte) {}) }

// placer checks the sum of each packet that arrives, and copies the payload to where the message is put together.
func placer(fd int) {
	message, at := make([]byte, 1<<20), 0
	receiveBlast(fd, func(group []byte) {
		for ; len(group) >= blastSegment; group = group[blastSegment:] {
			var sum [wire.ICRCSize]byte
			payload := group[blastHeader:][:blastPayload]
			wire.Checksum(0).BTH(group[:blastHeader]).Update(payload).Put(sum[:])
			if string(sum[:]) != string(group[blastHeader+blastPayload:blastSegment]) {
				fmt.Println("a packet with a wrong sum")
				os.Exit(1)
			}
			copy(message[at:], payload)
			at = (at + blastPayload) % len(message)
		}
	})
}

func receiveBlast(fd int, each func(group []byte)) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	b := make([]byte, 1<<16)
	total := 0
	var began, last time.Time
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		if last = time.Now(); total == 0 {
			began = last
		}
		each(b[:n])
		total += n
	}
	fmt.Println(float64(total) * 8 / max(last.Sub(began).Seconds(), 1e-9) / 1e9)
}

// iperf returns the Gbit/s of iperf3 with one TCP stream from one host to another.
func iperf(length time.Duration, from, to host) (float64, error) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		return 0, fmt.Errorf("%w: %w (apt-get install iperf3)", errSkip, err)
	}
	const port = "15201"
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second+length)
	defer cancel()
	server := exec.CommandContext(ctx, "iperf3", "-s", "-1", "-B", to.address, "-p", port)
	if err := to.start(server); err != nil {
		return 0, err
	}
	defer server.Wait()
	defer server.Process.Kill()
	time.Sleep(100 * time.Millisecond)
	// iperf3 counts whole seconds.
	seconds := fmt.Sprint(max(int(length.Round(time.Second).Seconds()), 1))
	client := exec.CommandContext(ctx, "iperf3", "-c", to.address, "-p", port, "-t", seconds, "-J")
	var out limited
	client.Stdout = &out
	err := from.start(client)
	if err == nil {
		err = client.Wait()
	}
	text := out.b
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w: %s", err, text)
	}
	var r struct {
		End struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return 0, err
	}
	return r.End.SumReceived.BitsPerSecond / 1e9, nil
}
