/* What the tests of the library share: programs against the public header alone, which begin and end in one process. Each
 * test is a program that exits 0, or prints the line that was not so and exits 1. */
#ifndef SOFTNIC_TESTING_H
#define SOFTNIC_TESTING_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* REQUIRE ends the program if condition is not so. */
#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			test_fail(__FILE__, __LINE__, #condition, "");                                                 \
	} while (0)

/* REQUIRE_EQ does for numbers, and prints them. */
#define REQUIRE_EQ(got, want)                                                                                          \
	do {                                                                                                           \
		long long got_ = (long long)(got), want_ = (long long)(want);                                          \
		if (got_ != want_) {                                                                                   \
			char text_[80];                                                                                \
			snprintf(text_, sizeof(text_), ": %lld (0x%llx), want %lld (0x%llx)", got_,                    \
				 (unsigned long long)got_, want_, (unsigned long long)want_);                          \
			test_fail(__FILE__, __LINE__, #got " == " #want, text_);                                       \
		}                                                                                                      \
	} while (0)

/* REQUIRE_ERRNO is for calls that return NULL and set errno. */
#define REQUIRE_ERRNO(pointer, error)                                                                                  \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		REQUIRE((pointer) == NULL);                                                                            \
		REQUIRE_EQ(errno, error);                                                                              \
	} while (0)

_Noreturn void test_fail(const char *file, int line, const char *what, const char *detail);

/* A side is one end of a connection: a queue pair, a completion queue for both of its queues, and memory with all rights. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq; /* NULL for none */
	struct ibv_mr *mr;
	uint8_t *mem;
	size_t size;
};

enum { SIDE_MEMORY = 1 << 16, SIDE_DEPTH = 64, SIDE_SGE = 4, SIDE_INLINE = 64, QKEY = 0x11111111 };

#define ALL_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |         \
	 IBV_ACCESS_MW_BIND)

/* The device named by TEST_DEVICE, or else the first. */
struct ibv_context *test_open(void);

/* The first entry of its GID table that is filled, and the address that leads to it. */
int test_gid_index(struct ibv_context *context);
struct ibv_ah_attr test_address(struct ibv_context *context);

/* A side without and with its queue pair, which is in state RESET. */
void side_open(struct side *s, struct ibv_context *context);
void side_qp(struct side *s, enum ibv_qp_type type);
void side_qp_ex(struct side *s, enum ibv_qp_type type, uint64_t send_ops);
void side_close(struct side *s);

struct ibv_qp_init_attr_ex side_init_attr(struct side *s, enum ibv_qp_type type);

/* Queue pairs to RTS, connected with the one that has that number; of XRC, each half what it has; UD with QKEY. */
void test_ready(struct ibv_qp *qp, uint32_t peer);
void test_connect(struct side *a, struct side *b);

/* One completion, or the end after some seconds. want is its status. */
struct ibv_wc test_wait(struct ibv_cq *cq, enum ibv_wc_status want);
/* No completion is there, now and after a moment. */
void test_quiet(struct ibv_cq *cq);

/* Post one request that may be wrong, and give what the call returns. */
int test_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr);
int test_post_recv(struct side *s, uint64_t id, size_t offset, uint32_t length);

struct ibv_sge side_sge(struct side *s, size_t offset, uint32_t length);

uint64_t test_now_ns(void);

/* Fill memory with bytes that depend on their place and the seed, and require that it still has them. */
void test_fill(uint8_t *p, size_t n, unsigned seed);
void test_filled(const uint8_t *p, size_t n, unsigned seed);

/* One SEND from a to b, completed on both sides. */
void test_message(struct side *a, struct side *b, uint32_t length);

#endif
