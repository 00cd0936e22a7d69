/* Registered memory and forks. What was written before the fork the child has; from then on what parent and child write is
 * each one's own, on every page of a region and around it, whatever the device does meanwhile for the parent. */
#include "testing.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ROOM = 12 * PAGE, ROUNDS = 20 };

static uint8_t *room;

static void require_all(uint8_t want)
{
	for (int i = 0; i < ROOM; i++)
		REQUIRE_EQ(room[i], want);
}

static void hear(int fd)
{
	char c;

	REQUIRE_EQ(read(fd, &c, 1), 1);
}

static void tell(int fd) { REQUIRE_EQ(write(fd, "x", 1), 1); }

/* In the child. It never writes what the parent could see, nor sees what the parent writes. */
static void child(int in, int out)
{
	hear(in); /* the parent has written everything */
	require_all(1);
	memset(room, 2, ROOM);
	tell(out);
	hear(in); /* and the device too */
	require_all(2);
	REQUIRE_EQ(madvise(room, ROOM, MADV_DONTNEED), 0);
	require_all(0);
	_exit(0);
}

int main(void)
{
	struct ibv_context *context = test_open();
	struct side a, b;

	side_open(&a, context);
	side_open(&b, context);
	side_qp(&a, IBV_QPT_RC);
	side_qp(&b, IBV_QPT_RC);
	test_connect(&a, &b);
	memset(b.mem, 4, ROOM);
	for (int round = 0; round < ROUNDS; round++) {
		/* Whole pages, and such that begin and end within one, where others' bytes are beside the region. */
		size_t from = round % 2 ? 0 : 100, size = round % 2 ? ROOM : ROOM - 1000;
		int to[2], back[2], status;
		struct ibv_mr *mr, *other = NULL;
		struct ibv_sge sge = { (uintptr_t)b.mem, (uint32_t)size, b.mr->lkey };
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
		pid_t pid;

		room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		REQUIRE(room != MAP_FAILED);
		mr = ibv_reg_mr(a.pd, room + from, size, ALL_ACCESS);
		if (round % 3 == 0)
			other = ibv_reg_mr(a.pd, room + 3 * PAGE, 5 * PAGE, ALL_ACCESS);
		REQUIRE(mr != NULL);
		wr.wr.rdma.remote_addr = (uintptr_t)room + from;
		wr.wr.rdma.rkey = mr->rkey;
		memset(room, 1, ROOM);
		REQUIRE(pipe(to) == 0 && pipe(back) == 0);
		pid = fork();
		REQUIRE(pid >= 0);
		if (pid == 0)
			child(to[0], back[1]);
		memset(room, 3, ROOM);
		tell(to[1]);
		hear(back[0]);
		require_all(3);
		REQUIRE_EQ(test_post_send(b.qp, &wr), 0);
		test_wait(b.cq, IBV_WC_SUCCESS);
		for (size_t i = 0; i < ROOM; i++)
			REQUIRE_EQ(room[i], i < from || i >= from + size ? 3 : 4);
		tell(to[1]);
		REQUIRE_EQ(waitpid(pid, &status, 0), pid);
		REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		if (other)
			REQUIRE_EQ(ibv_dereg_mr(other), 0);
		REQUIRE_EQ(ibv_dereg_mr(mr), 0);
		for (int i = 0; i < 2; i++) {
			close(to[i]);
			close(back[i]);
		}
		munmap(room, ROOM);
	}
	side_close(&a);
	side_close(&b);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
