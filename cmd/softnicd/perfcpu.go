package main

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/verbs"
)

// perfProcess names a process, across machines.
type perfProcess struct {
	Boot string `json:"boot"` // the kernel's boot id: another machine has another one
	PID  int    `json:"pid"`
}

// cpuTime returns the processor time that a process has used. The kernel has a clock for each process, whose number is
// made from the pid (CPUCLOCK_SCHED is 2).
func cpuTime(pid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// daemonProcess finds who serves the control socket; PID 0 if that cannot be told.
func daemonProcess(socket string) perfProcess {
	if socket == "" {
		socket = verbs.SocketPath()
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	p := perfProcess{Boot: string(bytes.TrimSpace(boot))}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return p
	}
	defer unix.Close(fd)
	if unix.Connect(fd, &unix.SockaddrUnix{Name: socket}) != nil {
		return p
	}
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		p.PID = int(cred.Pid)
	}
	return p
}

// cpuMeter measures the processor time of this process and its daemon.
type cpuMeter struct {
	daemon      int // 0 for none, or if the peer counts it
	self, other time.Duration
}

func (m *cpuMeter) start() {
	m.self = cpuTime(os.Getpid())
	if m.daemon != 0 {
		m.other = cpuTime(m.daemon)
	}
}

func (m *cpuMeter) used() time.Duration {
	d := cpuTime(os.Getpid()) - m.self
	if m.daemon != 0 {
		d += cpuTime(m.daemon) - m.other
	}
	return d
}
