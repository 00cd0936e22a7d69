package shm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of linux/fs.h, since Linux 6.11.
type procmapQuery struct {
	size                  uint64
	queryFlags            uint64
	queryAddr             uint64
	start, end            uint64
	flags                 uint64
	pageSize              uint64
	offset                uint64
	inode                 uint64
	devMajor, devMinor    uint32
	nameSize, buildIDSize uint32
	nameAddr, buildIDAddr uint64
}

// PROCMAP_QUERY is _IOWR('f', 17, struct procmap_query).
const ioctlProcmapQuery = 3<<30 | uint(unsafe.Sizeof(procmapQuery{}))<<16 | 'f'<<8 | 17

// askMapping asks a /proc/PID/maps for the mapping that has an address. ENOENT is that there is none; what else goes wrong
// says nothing about the address, ENOTTY that the kernel does not know the question.
func askMapping(fd int, addr uint64) (m mapping, errno unix.Errno) {
	q := procmapQuery{size: uint64(unsafe.Sizeof(procmapQuery{})), queryAddr: addr}
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(ioctlProcmapQuery), uintptr(unsafe.Pointer(&q)))
	runtime.KeepAlive(&q)
	if errno != 0 {
		return m, errno
	}
	if q.end <= q.start || addr < q.start || addr >= q.end {
		return m, unix.EIO
	}
	prot := []byte("---p")
	for i, set := range "rwxs" {
		if q.flags&(1<<i) != 0 {
			prot[i] = byte(set)
		}
	}
	return mapping{q.start, q.end - 1, string(prot)}, 0
}
