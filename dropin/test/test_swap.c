/* Registered memory that moves into memory which the device has mapped too: its contents stay, whatever overlaps and in
 * whatever order regions end; programs that unmap first or move it are served; and what cannot move works as well. */
#define _GNU_SOURCE /* mremap */
#include "testing.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

static struct side a, b;

static uint8_t *map(size_t n)
{
	uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(p != MAP_FAILED);
	return p;
}

/* How many pages of [p, p+n) are in shared memory. */
static size_t shared_pages(const uint8_t *p, size_t n)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	size_t pages = 0;

	REQUIRE(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		uintptr_t begin, end, first = (uintptr_t)p, last = first + n;
		char prot[5];

		if (sscanf(line, "%lx-%lx %4s", &begin, &end, prot) != 3 || prot[3] != 's')
			continue;
		begin = begin < first ? first : begin;
		end = end < last ? end : last;
		if (begin < end)
			pages += (end - begin) / PAGE;
	}
	fclose(f);
	return pages;
}

static struct ibv_mr *reg(void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(a.pd, p, n, ALL_ACCESS);

	REQUIRE(mr != NULL);
	return mr;
}

/* Writes length bytes from local memory of a to memory that a has registered too: over the connection with b and back is no
 * more than this. */
static void rdma(enum ibv_wr_opcode opcode, struct ibv_mr *local, uint8_t *at, struct ibv_mr *remote, uint8_t *to, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)at, length, local->lkey };
	struct ibv_send_wr wr = {
		.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { (uintptr_t)to, remote->rkey },
	};

	REQUIRE_EQ(test_post_send(b.qp, &wr), 0);
	test_wait(b.cq, IBV_WC_SUCCESS);
}

/* The device writes and reads all of mr, and both sides see it. */
static void device_reaches(struct ibv_mr *mr, unsigned seed)
{
	size_t n = mr->length;
	uint8_t *p = malloc(n);
	struct ibv_mr *other;

	REQUIRE(p != NULL);
	other = ibv_reg_mr(b.pd, p, n, ALL_ACCESS);
	REQUIRE(other != NULL);
	test_fill(p, n, seed);
	rdma(IBV_WR_RDMA_WRITE, other, p, mr, mr->addr, (uint32_t)n);
	test_filled(mr->addr, n, seed);
	test_fill(mr->addr, n, seed + 1);
	rdma(IBV_WR_RDMA_READ, other, p, mr, mr->addr, (uint32_t)n);
	test_filled(p, n, seed + 1);
	REQUIRE_EQ(ibv_dereg_mr(other), 0);
	free(p);
}

static void test_contents(bool expect)
{
	enum { LARGEST = 5 << 20 };
	static const size_t sizes[] = { 1, 100, PAGE, 3 * PAGE, 70000, LARGEST }, offsets[] = { 1, 0, 4000, PAGE };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t k = 0; k < sizeof(offsets) / sizeof(offsets[0]); k++) {
			size_t n = sizes[i], off = offsets[k], room = (off + n + 2 * PAGE) / PAGE * PAGE;
			size_t whole = (off + n) / PAGE - (off + PAGE - 1) / PAGE;
			struct ibv_mr *mr;
			uint8_t *all, *p;

			/* The largest once: half a second of moving in vain is all that a process has (ranges.c), and a page
			 * takes 50 us on some hosts. */
			if (n == LARGEST && k > 0)
				continue;
			all = map(room);
			p = all + off;
			if ((off + n) / PAGE < (off + PAGE - 1) / PAGE)
				whole = 0;
			test_fill(all, room, 3);
			mr = reg(p, n);
			REQUIRE_EQ(shared_pages(all, room), expect ? whole : 0);
			test_filled(all, room, 3);
			device_reaches(mr, (unsigned)(i + k));
			test_fill(all, room, 9);
			REQUIRE_EQ(ibv_dereg_mr(mr), 0);
			REQUIRE_EQ(shared_pages(all, room), 0);
			test_filled(all, room, 9);
			munmap(all, room);
		}
}

static void test_overlaps(void)
{
	enum { REGIONS = 6, ROOM = 40 * PAGE };
	static const struct {
		size_t offset, size;
	} at[REGIONS] = { { 10 * PAGE, 10 * PAGE }, { 0, 40 * PAGE }, { 100, 12 * PAGE }, { 10 * PAGE, 10 * PAGE }, { 15 * PAGE + 8, 24 * PAGE }, { 19 * PAGE, 17 } };
	uint8_t *p = map(ROOM);
	struct ibv_mr *mr[REGIONS];

	for (int first = 0; first < REGIONS; first++) {
		test_fill(p, ROOM, 1);
		for (int i = 0; i < REGIONS; i++)
			mr[i] = reg(p + at[i].offset, at[i].size);
		test_filled(p, ROOM, 1);
		for (int i = 0; i < REGIONS; i++) {
			struct ibv_mr *gone = mr[(first + i) % REGIONS];

			for (int k = i; k < REGIONS; k++)
				device_reaches(mr[(first + k) % REGIONS], (unsigned)k);
			test_fill(p, ROOM, (unsigned)i);
			REQUIRE_EQ(ibv_dereg_mr(gone), 0);
			test_filled(p, ROOM, (unsigned)i);
		}
		REQUIRE_EQ(shared_pages(p, ROOM), 0);
	}
	munmap(p, ROOM);
}

/* More pieces than a registration can tell the daemon of. */
static void test_pieces(void)
{
	enum { N = 100, ROOM = (2 * N + 1) * PAGE };
	uint8_t *p = map(ROOM);
	struct ibv_mr *mr[N], *all;

	test_fill(p, ROOM, 5);
	/* Read-only pages do not move. */
	for (int i = 0; i < N; i++) {
		REQUIRE_EQ(mprotect(p + (size_t)2 * (size_t)i * PAGE, PAGE, PROT_READ), 0);
		mr[i] = reg(p + (size_t)(2 * i + 1) * PAGE, PAGE);
	}
	all = ibv_reg_mr(a.pd, p, ROOM, 0);
	REQUIRE(all != NULL);
	REQUIRE_EQ(mprotect(p, ROOM, PROT_READ | PROT_WRITE), 0);
	REQUIRE_EQ(ibv_rereg_mr(all, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS), 0);
	device_reaches(all, 6);
	for (int i = 0; i < N; i++)
		REQUIRE_EQ(ibv_dereg_mr(mr[i]), 0);
	device_reaches(all, 7);
	/* From pieces to one piece and back. */
	REQUIRE_EQ(ibv_rereg_mr(all, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p + 50, 100, 0), 0);
	device_reaches(all, 8);
	REQUIRE_EQ(ibv_rereg_mr(all, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p + 50, ROOM - 100, 0), 0);
	device_reaches(all, 9);
	REQUIRE_EQ(ibv_dereg_mr(all), 0);
	REQUIRE_EQ(shared_pages(p, ROOM), 0);
	munmap(p, ROOM);
}

/* What programs do with memory before they deregister it, though they should not. */
static void test_disorder(void)
{
	enum { ROOM = 16 * PAGE };
	uint8_t *p = map(ROOM), *q;
	struct ibv_mr *mr = reg(p, ROOM), *again;

	munmap(p, ROOM);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);

	p = map(ROOM);
	mr = reg(p, ROOM);
	munmap(p, ROOM);
	q = mmap(p, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	REQUIRE(q == p);
	test_fill(q, ROOM, 1);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	test_filled(q, ROOM, 1);

	/* Part of it. */
	mr = reg(p, ROOM);
	q = mmap(p + 3 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	REQUIRE(q == p + 3 * PAGE);
	REQUIRE_EQ(mprotect(p + 8 * PAGE, PAGE, PROT_READ), 0);
	test_fill(p, 8 * PAGE, 2);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	test_filled(p, 8 * PAGE, 2);
	REQUIRE_EQ(mprotect(p + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	REQUIRE_EQ(shared_pages(p, ROOM), 0);

	/* Moved, and then used on. */
	mr = reg(p, ROOM);
	test_fill(p, ROOM, 3);
	q = map(ROOM);
	REQUIRE(mremap(p, ROOM, ROOM, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	p = q;
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	again = reg(p, ROOM);
	test_filled(p, ROOM, 3);
	test_fill(p, ROOM, 4);
	mr = reg(p, ROOM);
	test_filled(p, ROOM, 4);
	REQUIRE_EQ(ibv_dereg_mr(again), 0);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	test_filled(p, ROOM, 4);
	munmap(p, ROOM);

	/* And after it was deregistered, as everybody may. */
	p = malloc(1 << 20);
	test_fill(p, 1 << 20, 5);
	REQUIRE_EQ(ibv_dereg_mr(reg(p, 1 << 20)), 0);
	p = realloc(p, 3 << 20);
	test_filled(p, 1 << 20, 5);
	free(p);
	p = map(ROOM);
	memset(p, 1, ROOM);
	REQUIRE_EQ(ibv_dereg_mr(reg(p, ROOM)), 0);
	REQUIRE_EQ(madvise(p, ROOM, MADV_DONTNEED), 0);
	for (size_t i = 0; i < ROOM; i++)
		REQUIRE_EQ(p[i], 0);
	munmap(p, ROOM);
}

/* The stack, and what is not memory of the program alone. */
static void test_others(void)
{
	uint8_t stack[20 * PAGE], *p;
	static uint8_t data[20 * PAGE] = { 1 };
	struct ibv_mr *mr = reg(stack, sizeof(stack));

	memset(stack, 0, sizeof(stack));
	device_reaches(mr, 1);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	mr = reg(data, sizeof(data));
	device_reaches(mr, 2);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(p != MAP_FAILED);
	mr = reg(p, 4 * PAGE);
	device_reaches(mr, 3);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	munmap(p, 4 * PAGE);
	p = map(4 * PAGE);
	munmap(p + 2 * PAGE, PAGE);
	REQUIRE_ERRNO(ibv_reg_mr(a.pd, p, 4 * PAGE, 0), EFAULT);
	REQUIRE_ERRNO(ibv_reg_mr(a.pd, p, 4 * PAGE, 0), EFAULT);
	munmap(p, 4 * PAGE);
}

/* Thousands of small regions, all live at once. */
static void test_many(int n)
{
	struct ibv_mr **mr = calloc((size_t)n, sizeof(*mr));
	uint8_t *p = map((size_t)n * 2 * PAGE);

	REQUIRE(mr != NULL);
	for (int i = 0; i < n; i++) {
		test_fill(p + (size_t)i * 2 * PAGE, PAGE, (unsigned)i);
		mr[i] = reg(p + (size_t)i * 2 * PAGE, PAGE);
	}
	for (int i = 0; i < n; i++) {
		test_filled(p + (size_t)i * 2 * PAGE, PAGE, (unsigned)i);
		if (i % 500 == 0)
			device_reaches(mr[i], 0);
		REQUIRE_EQ(ibv_dereg_mr(mr[i]), 0);
	}
	REQUIRE_EQ(shared_pages(p, (size_t)n * 2 * PAGE), 0);
	munmap(p, (size_t)n * 2 * PAGE);
	free(mr);
}

/* Threads that write all the time, where the user asks for swapping nevertheless: nothing is lost. */
enum { WRITERS = 2, WORDS = 4 * PAGE / sizeof(uint64_t) };

static _Atomic bool stop;
static uint64_t *words;

static void *count_up(void *arg)
{
	uint64_t *mine = words + (size_t)arg, n = 0;

	for (; !stop; n++)
		for (size_t i = 0; i < WORDS; i += WRITERS) {
			REQUIRE_EQ(mine[i], n);
			((volatile uint64_t *)mine)[i] = n + 1;
		}
	return NULL;
}

/* expect says whether pages move. */
static void test_writers(bool expect)
{
	pthread_t thread[WRITERS];

	stop = false;
	words = (uint64_t *)map(4 * PAGE);
	for (size_t i = 0; i < WRITERS; i++)
		REQUIRE_EQ(pthread_create(&thread[i], NULL, count_up, (void *)i), 0);
	for (int i = 0; i < 40; i++) {
		struct ibv_mr *mr = reg(words, 4 * PAGE);

		REQUIRE_EQ(shared_pages((uint8_t *)words, 4 * PAGE), expect ? 4 : 0);
		usleep(500);
		REQUIRE_EQ(ibv_dereg_mr(mr), 0);
		REQUIRE_EQ(shared_pages((uint8_t *)words, 4 * PAGE), 0);
	}
	stop = true;
	for (size_t i = 0; i < WRITERS; i++)
		pthread_join(thread[i], NULL);
	munmap(words, 4 * PAGE);
}

static char *_Atomic stack_of;
static _Atomic unsigned signals;

static void *run(void *unused)
{
	stack_of = (char *)((uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)(PAGE - 1));
	while (!stop)
		;
	return unused;
}

static void *interrupt(void *thread)
{
	while (!stop)
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void count_signal(int number)
{
	(void)number;
	signals++;
}

/* The system writes to the stacks of threads by itself, and to what is above them: they are used while they are
 * registered, but not moved. */
static void test_stacks(void)
{
	pthread_t thread, other;

	stop = false;
	signal(SIGUSR1, count_signal);
	REQUIRE_EQ(pthread_create(&thread, NULL, run, NULL), 0);
	while (!stack_of)
		usleep(100);
	REQUIRE_EQ(pthread_create(&other, NULL, interrupt, &thread), 0);
	for (int i = 0; i < 200 || signals < 10; i++) {
		struct ibv_mr *mr = reg(stack_of - 16 * PAGE, 17 * PAGE);

		REQUIRE_EQ(shared_pages((uint8_t *)stack_of - 16 * PAGE, 17 * PAGE), 0);
		REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	}
	stop = true;
	pthread_join(other, NULL);
	pthread_join(thread, NULL);
}

/* As containers forbid it. */
static void forbid_userfaultfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	REQUIRE_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	REQUIRE_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static bool has_userfaultfd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* The number of small regions may be given; and "quick" for tools under which threads are slow or moving pages means
 * something else. */
int main(int argc, char **argv)
{
	bool quick = argc > 2;
	struct ibv_context *context = test_open();

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);

	test_contents(true);
	test_overlaps();
	test_pieces();
	if (!quick) {
		test_writers(false);
		REQUIRE_EQ(setenv("SOFTNICD_SWAP", "always", 1), 0);
		test_writers(has_userfaultfd());
		test_stacks();
		forbid_userfaultfd();
		test_writers(false);
		REQUIRE_EQ(unsetenv("SOFTNICD_SWAP"), 0);
	}
	test_disorder();
	test_others();
	test_many(argc > 1 ? atoi(argv[1]) : 1000);
	REQUIRE_EQ(setenv("SOFTNICD_SWAP", "never", 1), 0);
	test_contents(false);
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
