/* Moving pages of the program into a store and back, so that nothing that is written meanwhile is lost.
 *
 * While the process has one thread that is easy: this thread is here, and with its signals blocked it is nowhere else. The
 * pages are copied, and what they were copied to takes their place. A page of the stack that we are on cannot be moved so.
 *
 * With more threads a page has to be out of their reach while it is copied. userfaultfd makes those wait who touch it: the
 * pages are moved elsewhere by mremap(MREMAP_DONTUNMAP), which leaves a hole that is being watched, and are copied from
 * there; then the store takes the place of the hole. Pages that were moved before, and back, are copies of pages of a file:
 * touched in the hole they are missing, or still in the file (UFFDIO_REGISTER_MODE_MINOR, Linux 5.14), and both have to be
 * watched, or the file's old bytes are read. Where only the system touches the hole, as by read(2), it says EFAULT instead
 * of waiting, which is why the user has to ask for this, and why stacks stay (stacks.c). The way back needs no watch: a
 * private mapping of the file takes the place of the shared one in one step, and then every page is made to be a copy. */
#include "memory.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_MINOR_SHMEM
#define UFFD_FEATURE_MINOR_SHMEM (1 << 10)
#endif
#ifndef UFFDIO_REGISTER_MODE_MINOR
#define UFFDIO_REGISTER_MODE_MINOR ((uint64_t)1 << 2)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What is moved at a time: while it is, it takes twice its memory. */
#define STEP ((size_t)16 << 20)

bool sn_alone(void)
{
	struct stat st;

	/* A folder for each thread, and the two that every folder has. */
	return stat("/proc/self/task", &st) == 0 && st.st_nlink == 3;
}

/* Shows bytes of a store somewhere. */
static void *window(const struct sn_store *s, uint64_t offset, size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->fd, (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}

/* Moves the pages at p to address at, over whatever is there. */
static bool replace(void *p, size_t n, uintptr_t at)
{
	return mremap(p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) != MAP_FAILED;
}

static bool in_alone(const struct sn_store *s, uint64_t offset, uintptr_t at, size_t n)
{
	void *to = window(s, offset, n);
	sigset_t all, before;
	bool done;

	if (!to)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	memcpy(to, (const void *)at, n);
	done = replace(to, n, at);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!done)
		munmap(to, n);
	return done;
}

/* Opens a watch over pages: -1 where that is not allowed, or this system cannot watch pages that were a store's. */
static int watch(uintptr_t at, size_t n, bool stored)
{
	struct uffdio_api api = { .api = UFFD_API, .features = stored ? UFFD_FEATURE_MINOR_SHMEM : 0 };
	struct uffdio_register r = {
		.range = { at, n },
		.mode = UFFDIO_REGISTER_MODE_MISSING | (stored ? UFFDIO_REGISTER_MODE_MINOR : 0),
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY), err;

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &r) == 0)
		return fd;
	err = errno;
	if (fd >= 0)
		close(fd);
	if (stored && err == EINVAL)
		return -1;
	sn_say(SN_SAY_SWAP, "registered memory cannot be moved to where the device has mapped it while this process has several "
			    "threads, since userfaultfd is not allowed (%s): it is slower than it could be; containers have to "
			    "allow it in their seccomp profile, or register while there is one thread", strerror(err));
	return -1;
}

static bool in_watched(const struct sn_store *s, uint64_t offset, uintptr_t at, size_t n, bool stored)
{
	struct uffdio_range all = { at, n };
	void *to = window(s, offset, n), *from;
	sigset_t every, before;
	bool done = false;
	int fd = to ? watch(at, n, stored) : -1;

	if (fd < 0) {
		if (to)
			munmap(to, n);
		return false;
	}
	/* A handler that ran here and touched the pages would wait for us. */
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	from = mremap((void *)at, n, n, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (from != MAP_FAILED) {
		memcpy(to, from, n);
		done = replace(to, n, at);
		if (done)
			munmap(from, n);
		else
			replace(from, n, at);
		ioctl(fd, UFFDIO_WAKE, &all);
	}
	close(fd); /* whoever still waits looks again */
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!done)
		munmap(to, n);
	return done;
}

uintptr_t sn_swap_in(const struct sn_store *s, uint64_t offset, uintptr_t begin, uintptr_t end, bool alone, bool stored)
{
	while (begin < end) {
		size_t n = end - begin < STEP ? end - begin : STEP;

		if (!(alone ? in_alone(s, offset, begin, n) : in_watched(s, offset, begin, n, stored)))
			break;
		begin += n;
		offset += n;
	}
	return begin;
}

static bool out_alone(const struct sn_store *s, uint64_t offset, uintptr_t at, size_t n, int prot)
{
	void *from = window(s, offset, n);
	sigset_t all, before;
	bool done;

	if (!from)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* Made at its own address, the system can make one mapping of it and its neighbours. */
	done = mmap((void *)at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	if (done) {
		memcpy((void *)at, from, n);
		munmap(from, n);
	} else {
		replace(from, n, at);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (done && prot != (PROT_READ | PROT_WRITE))
		mprotect((void *)at, n, prot);
	return done;
}

/* The pages of the file have no user after this, but the mapping is of the file for ever. */
static void out_watched(const struct sn_store *s, uint64_t offset, uintptr_t at, size_t n, int prot)
{
	if (mmap((void *)at, n, prot, MAP_PRIVATE | MAP_FIXED, s->fd, (off_t)offset) == MAP_FAILED)
		return;
	if (prot & PROT_WRITE && madvise((void *)at, n, MADV_POPULATE_WRITE) == 0)
		fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)n);
}

/* Whether a mapping of this process is of these bytes of the store. */
static bool is_mapped(const struct sn_store *s, uint64_t offset, uint64_t size)
{
	struct sn_maps m;
	struct sn_map v;
	bool found = false;

	if (!sn_maps_open(&m))
		return true; /* who knows */
	while (!found && sn_maps_next(&m, &v))
		found = v.stored && v.inode == s->inode && v.major == s->major && v.minor == s->minor && v.offset < offset + size &&
			v.offset + (v.end - v.begin) > offset;
	sn_maps_close(&m);
	return found;
}

bool sn_swap_out(const struct sn_store *s, uint64_t offset, uintptr_t begin, uintptr_t end)
{
	bool alone = sn_alone(), all = alone;
	uintptr_t at = begin;
	struct sn_maps m;
	struct sn_map v;

	if (!sn_maps_open(&m))
		return false; /* it stays where it is */
	/* The program may have unmapped it, moved it or put something else there, before it has deregistered. */
	while (at < end && sn_maps_next(&m, &v)) {
		uintptr_t to = v.end < end ? v.end : end;

		if (v.end <= at)
			continue;
		if (v.begin > at) {
			all = false;
			at = v.begin;
			if (at >= end)
				break;
		}
		if (!v.shared || !sn_store_is(s, &v, at, offset + (at - begin)))
			all = false;
		else if (!alone)
			out_watched(s, offset + (at - begin), at, to - at, v.prot);
		else
			for (size_t n; at < to; at += n) {
				n = to - at < STEP ? to - at : STEP;
				all &= out_alone(s, offset + (at - begin), at, n, v.prot);
			}
		at = to;
	}
	all &= at >= end;
	sn_maps_close(&m);
	return all || !is_mapped(s, offset, end - begin);
}
