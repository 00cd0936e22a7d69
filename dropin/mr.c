/* Memory regions.
 *
 * The device reaches what an application registers through the operating system: by process number, or, where that is not
 * allowed or means nothing (another process namespace), by descriptors of /proc/self/mem and /proc/self/maps, which the
 * first registration sends along. */
#include "softnic.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

int sn_mr_describe(struct sn_context *c, struct softnic_ctl_reg_mr *q, void *addr, size_t length, uint64_t iova,
		   unsigned int access)
{
	(void)c;
	q->kind = SOFTNIC_CTL_MEMORY_PROCESS;
	q->access = access & ~(unsigned int)IBV_ACCESS_ON_DEMAND; /* nothing is pinned: every region is */
	q->addr = (uintptr_t)addr;
	q->length = length;
	q->base = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	return 0;
}

/* Under Yama only parents may trace, unless a process names who else may: the daemon, or, once it has opened devices of
 * two of them, any process of this user. Where there is no Yama the call fails, and nothing is lost. */
static void allow_tracing(struct sn_context *c)
{
	static atomic_int named;
	struct ucred peer;
	socklen_t size = sizeof peer;
	int none = 0;

	if (getsockopt(c->conn.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
		return; /* it is in another process namespace, and needs the descriptors */
	if (atomic_compare_exchange_strong(&named, &none, peer.pid) || none == peer.pid)
		prctl(PR_SET_PTRACER, peer.pid, 0, 0, 0);
	else
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

static int first_call(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size)
{
	struct sn_fds fds = { .n = 0 };
	static const struct {
		const char *name;
		int flags;
	} files[] = { { "/proc/self/mem", O_RDWR }, { "/proc/self/maps", O_RDONLY } };
	int err = 0;

	allow_tracing(c);
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		int fd = open(files[i].name, files[i].flags | O_CLOEXEC);

		if (fd < 0) {
			/* The process number may do. */
			while (fds.n > 0)
				close(fds.fd[--fds.n]);
			break;
		}
		fds.fd[fds.n++] = fd;
	}
	err = sn_call_fds(c, op, request, request_size, reply, reply_size, &fds, NULL);
	if (!err)
		c->described = true;
	else if (fds.n == 0)
		sn_say(SN_SAY_PROC, "this process may not open its own /proc/self/mem (it is not dumpable, or /proc is not mounted): "
				      "the daemon has no way to registered memory; prctl(PR_SET_DUMPABLE, 1) or a mounted /proc gives it one");
	while (fds.n > 0)
		close(fds.fd[--fds.n]);
	return err;
}

int sn_mr_call(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size)
{
	int err;

	pthread_mutex_lock(&c->describing);
	if (!c->described) {
		err = first_call(c, op, request, request_size, reply, reply_size);
		pthread_mutex_unlock(&c->describing);
		return err;
	}
	pthread_mutex_unlock(&c->describing);
	return sn_call(c, op, request, request_size, reply, reply_size);
}

SN_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct sn_context *c = sn_context_of(pd->context);
	struct softnic_ctl_reg_mr q = { .pd = pd->handle };
	struct softnic_ctl_reg_mr_reply r;
	struct sn_mr *m = calloc(1, sizeof *m);
	int err = m ? sn_mr_describe(c, &q, addr, length, iova, access) : ENOMEM;

	if (!err)
		err = sn_mr_call(c, SOFTNIC_CTL_OP_REG_MR, &q, sizeof q, &r, sizeof r);
	if (err) {
		free(m);
		errno = err;
		return NULL;
	}
	m->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length,
		.handle = r.handle, .lkey = r.lkey, .rkey = r.rkey,
	};
	m->access = access;
	return &m->mr;
}

SN_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

SN_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

SN_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	(void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	errno = EOPNOTSUPP;
	return NULL;
}

SN_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err = sn_destroy(sn_context_of(mr->context), SOFTNIC_CTL_OP_DEREG_MR, mr->handle);

	if (!err) {
		if (sn_mr_of(mr)->users)
			atomic_fetch_sub(sn_mr_of(mr)->users, 1);
		free(sn_mr_of(mr));
	}
	return err;
}
