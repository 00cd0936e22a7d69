/* Where threads have their stacks.
 *
 * The kernel writes into the memory of a thread by itself: a frame onto the stack when a signal comes, and into the C
 * library's description of the thread each time that the thread gets another processor (rseq). What is missing at that
 * moment ends the process, for the kernel does not wait as the thread would.
 *
 * The C library has the description above the stack, in the same mapping, and has told the kernel of a place in it, the
 * list of robust futexes. The first thread's stack is elsewhere, and is no ordinary memory. */
#include "memory.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the list to behind the end of the description, and more. */
#define REST 2048

static uintptr_t robust_list(pid_t thread)
{
	uintptr_t head = 0;
	size_t size;

	return syscall(SYS_get_robust_list, thread, &head, &size) == 0 ? head : 0;
}

uintptr_t sn_stacks_end(const struct sn_map *v, uintptr_t begin, uintptr_t end)
{
	uintptr_t in_page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	DIR *threads = opendir("/proc/self/task");
	struct dirent *e;

	if (!threads)
		return end;
	while ((e = readdir(threads))) {
		pid_t thread = (pid_t)atoi(e->d_name);
		uintptr_t head = thread > 0 ? robust_list(thread) : 0, from, to;

		if (head < v->begin || head >= v->end)
			continue;
		from = thread == getpid() ? head & ~in_page : v->begin;
		to = (head + REST + in_page) & ~in_page;
		if (from < end && to > begin)
			begin = to;
	}
	closedir(threads);
	return begin < end ? begin : end;
}
