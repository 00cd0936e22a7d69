/* Memory that a program shares by itself: the device maps what is sealed and of which there is a descriptor, and reaches all
 * other in the way that works for everything. */
#define _GNU_SOURCE /* memfd_create */
#include "testing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8, ROOM = PAGES * PAGE, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static struct side a, b;
static pid_t daemon_pid;

/* The daemon is who made the socket. */
static pid_t find_daemon(void)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const char *name = getenv("SOFTNICD_SOCKET");

	REQUIRE(fd >= 0 && name && strlen(name) < sizeof(to.sun_path));
	strcpy(to.sun_path, name);
	REQUIRE_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	REQUIRE_EQ(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
	close(fd);
	return peer.pid;
}

/* Whether a process maps the file with that number, as a memfd. */
static bool maps(pid_t pid, ino_t inode)
{
	char line[512];
	bool found = false;
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/maps", (int)pid);
	f = fopen(line, "r");
	REQUIRE(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		unsigned long n;

		if (sscanf(line, "%*s %*s %*s %*s %lu", &n) == 1 && n == inode && strstr(line, "/memfd:test"))
			found = true;
	}
	fclose(f);
	return found;
}

/* A memfd of that many bytes. */
static int memory(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	REQUIRE(fd >= 0);
	REQUIRE_EQ(ftruncate(fd, (off_t)size), 0);
	if (seals)
		REQUIRE_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static ino_t number(int fd)
{
	struct stat st;

	REQUIRE_EQ(fstat(fd, &st), 0);
	return st.st_ino;
}

static uint8_t *map(int fd, size_t offset, size_t size)
{
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	REQUIRE(p != MAP_FAILED);
	return p;
}

static struct ibv_mr *reg(struct side *s, void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(s->pd, p, n, ALL_ACCESS);

	REQUIRE(mr != NULL);
	return mr;
}

/* Between memory of b and of a: that they are one program's makes no difference to the device. */
static void transfer(enum ibv_wr_opcode opcode, struct ibv_mr *local, struct ibv_mr *remote)
{
	struct ibv_sge sge = { (uintptr_t)local->addr, (uint32_t)remote->length, local->lkey };
	struct ibv_send_wr wr = {
		.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { (uintptr_t)remote->addr, remote->rkey },
	};

	REQUIRE_EQ(test_post_send(b.qp, &wr), 0);
	test_wait(b.cq, IBV_WC_SUCCESS);
}

/* The device writes all of mr, and what it reads of it is what was written there last. */
static void device_reaches(struct ibv_mr *mr, unsigned seed)
{
	uint8_t *p = malloc(mr->length);
	struct ibv_mr *other;

	REQUIRE(p != NULL);
	other = reg(&b, p, mr->length);
	test_fill(p, mr->length, seed);
	transfer(IBV_WR_RDMA_WRITE, other, mr);
	test_filled(mr->addr, mr->length, seed);
	test_fill(mr->addr, mr->length, seed + 1);
	transfer(IBV_WR_RDMA_READ, other, mr);
	test_filled(p, mr->length, seed + 1);
	REQUIRE_EQ(ibv_dereg_mr(other), 0);
	free(p);
}

/* Two files, and no byte that the program touches between them: what the device has written is in the file. */
static void test_sealed(void)
{
	int from = memory(ROOM, SEALS), to = memory(3 * ROOM, SEALS);
	uint8_t *p = map(from, 0, ROOM), *all = map(to, 0, 3 * ROOM), *q = all + ROOM, bytes[ROOM];
	struct ibv_mr *source = reg(&b, p, ROOM), *target = reg(&a, q, ROOM), *again;

	REQUIRE(maps(daemon_pid, number(from)));
	REQUIRE(maps(daemon_pid, number(to)));
	test_fill(p, ROOM, 1);
	transfer(IBV_WR_RDMA_WRITE, source, target);
	test_filled(q, ROOM, 1);
	REQUIRE_EQ(pread(to, bytes, ROOM, ROOM), ROOM);
	test_filled(bytes, ROOM, 1);
	REQUIRE_EQ(fcntl(to, F_GET_SEALS), SEALS);

	/* A region inside of another, and one that only touches it. */
	again = reg(&a, q + 100, 2 * PAGE);
	REQUIRE_EQ(ibv_dereg_mr(target), 0);
	device_reaches(again, 2);
	target = reg(&a, q, ROOM);
	REQUIRE_EQ(ibv_dereg_mr(again), 0);
	device_reaches(target, 3);

	/* Neither descriptor nor mapping of the program is needed on. */
	close(from);
	munmap(q, ROOM);
	test_fill(p, ROOM, 4);
	transfer(IBV_WR_RDMA_WRITE, source, target);
	REQUIRE_EQ(pread(to, bytes, ROOM, ROOM), ROOM);
	test_filled(bytes, ROOM, 4);

	/* What comes to the same addresses before the region ends is itself. */
	REQUIRE(mmap(q, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q);
	again = reg(&a, q, ROOM);
	device_reaches(again, 5);
	REQUIRE_EQ(pread(to, bytes, ROOM, ROOM), ROOM);
	test_filled(bytes, ROOM, 4);
	REQUIRE_EQ(ibv_dereg_mr(again), 0);
	REQUIRE_EQ(ibv_dereg_mr(target), 0);
	REQUIRE_EQ(ibv_dereg_mr(source), 0);
	REQUIRE(!maps(daemon_pid, number(to)));
	munmap(p, ROOM);
	munmap(all, 3 * ROOM);
	close(to);
}

/* How it can be that the device does not get the file. */
enum reason { UNSEALED, FEW_SEALS, CLOSED, READING, PATH, LONGER };

static void test_refused(enum reason reason)
{
	int fd = memory(reason == LONGER ? ROOM - PAGE / 2 : ROOM, reason == UNSEALED ? 0 : reason == FEW_SEALS ? F_SEAL_SHRINK : SEALS);
	ino_t inode = number(fd);
	uint8_t *p = map(fd, 0, ROOM);
	char name[40];
	struct ibv_mr *mr;
	int other = -1;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (reason == READING || reason == PATH)
		REQUIRE((other = open(name, reason == PATH ? O_PATH : O_RDONLY)) >= 0);
	if (reason == CLOSED || other >= 0)
		close(fd);
	mr = reg(&a, p + 10, ROOM - 20);
	/* The last page is in part behind the file's end: it alone is not the device's. */
	REQUIRE_EQ(maps(daemon_pid, inode), reason == LONGER);
	device_reaches(mr, reason);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	REQUIRE(!maps(daemon_pid, inode));
	munmap(p, ROOM);
	if (reason != CLOSED)
		close(other >= 0 ? other : fd);
}

/* Pages that may only be read cannot be written through the file either. */
static void test_read_only(void)
{
	int fd = memory(ROOM, SEALS);
	uint8_t *p = map(fd, 0, ROOM);
	struct ibv_mr *mr;

	test_fill(p, ROOM, 1);
	REQUIRE_EQ(mprotect(p, ROOM, PROT_READ), 0);
	REQUIRE_ERRNO(ibv_reg_mr(a.pd, p, ROOM, ALL_ACCESS), EACCES);
	mr = ibv_reg_mr(a.pd, p, ROOM, IBV_ACCESS_REMOTE_READ);
	REQUIRE(mr != NULL);
	REQUIRE(!maps(daemon_pid, number(fd)));
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	munmap(p, ROOM);
	close(fd);
}

/* A region with private pages on both sides. */
static void test_between(void)
{
	int fd = memory(ROOM, SEALS);
	uint8_t *p = mmap(NULL, 3 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	REQUIRE(p != MAP_FAILED);
	REQUIRE(mmap(p + ROOM, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p + ROOM);
	test_fill(p, 3 * ROOM, 1);
	mr = reg(&a, p + 100, 3 * ROOM - 200);
	test_filled(p, 3 * ROOM, 1);
	REQUIRE(maps(daemon_pid, number(fd)));
	device_reaches(mr, 2);
	test_fill(p, 3 * ROOM, 4);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	test_filled(p, 3 * ROOM, 4);
	REQUIRE(!maps(daemon_pid, number(fd)));
	munmap(p, 3 * ROOM);
	close(fd);
}

/* A region that is changed to be of a file, of another place in it, and of ordinary memory again. */
static void test_changed(void)
{
	int fd = memory(2 * ROOM, SEALS);
	uint8_t *p = map(fd, 0, 2 * ROOM), *q = calloc(1, ROOM);
	struct ibv_mr *mr;

	REQUIRE(q != NULL);
	mr = reg(&a, q, ROOM);
	REQUIRE_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p + 5 * PAGE + 1, ROOM, 0), 0);
	REQUIRE(maps(daemon_pid, number(fd)));
	device_reaches(mr, 1);
	REQUIRE_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p, 6 * PAGE, 0), 0);
	REQUIRE(maps(daemon_pid, number(fd)));
	device_reaches(mr, 3);
	REQUIRE_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, q, ROOM, 0), 0);
	REQUIRE(!maps(daemon_pid, number(fd)));
	device_reaches(mr, 5);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	munmap(p, 2 * ROOM);
	free(q);
	close(fd);
}

/* A child shares what its parent has mapped before the fork, as without a device. */
static void test_fork(void)
{
	int fd = memory(ROOM, SEALS), status;
	uint8_t *p = map(fd, 0, ROOM);
	struct ibv_mr *mr = reg(&a, p, ROOM);
	pid_t child;

	test_fill(p, ROOM, 1);
	child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		test_filled(p, ROOM, 1);
		test_fill(p, ROOM, 2);
		_Exit(0);
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE_EQ(status, 0);
	test_filled(p, ROOM, 2);
	device_reaches(mr, 3);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	munmap(p, ROOM);
	close(fd);
}

/* Each context tells its own device of the file, and what of it is registered there ends with it. */
static void test_contexts(void)
{
	struct ibv_context *second = test_open();
	struct ibv_pd *pd = ibv_alloc_pd(second);
	int fd = memory(ROOM, SEALS);
	uint8_t *p = map(fd, 0, ROOM);
	struct ibv_mr *mr = reg(&a, p, ROOM), *other;

	REQUIRE(pd != NULL);
	other = ibv_reg_mr(pd, p, ROOM, ALL_ACCESS);
	REQUIRE(other != NULL);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	REQUIRE(maps(daemon_pid, number(fd)));
	mr = reg(&a, p, ROOM);
	REQUIRE_EQ(ibv_dereg_mr(other), 0);
	device_reaches(mr, 1);
	REQUIRE_EQ(ibv_dereg_mr(mr), 0);
	REQUIRE(!maps(daemon_pid, number(fd)));
	REQUIRE_EQ(ibv_dealloc_pd(pd), 0);
	REQUIRE_EQ(ibv_close_device(second), 0);
	munmap(p, ROOM);
	close(fd);
}

int main(void)
{
	struct ibv_context *context = test_open();

	daemon_pid = find_daemon();
	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	test_sealed();
	for (enum reason r = UNSEALED; r <= LONGER; r++)
		test_refused(r);
	test_read_only();
	test_between();
	test_changed();
	test_fork();
	test_contexts();
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
