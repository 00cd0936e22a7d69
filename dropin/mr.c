/* Memory regions.
 *
 * What of a region the device has not mapped (memory.h) it reaches through the operating system: by process number, or,
 * where that is not allowed or means nothing (another process namespace), by descriptors of /proc/self/mem and
 * /proc/self/maps, which the first registration of such memory sends along. */
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* A call about memory of which some or all is the program's own. */
static int call_own(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size)
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

/* A call about memory in one place. */
static int call_whole(struct sn_context *c, struct softnic_ctl_rereg_mr *q, const struct softnic_ctl_memory_part *p,
		      struct softnic_ctl_reg_mr_reply *r)
{
	bool own = p->kind == SOFTNIC_CTL_MEMORY_PROCESS, change = q->region != 0;
	uint16_t op = change ? SOFTNIC_CTL_OP_REREG_MR : SOFTNIC_CTL_OP_REG_MR;
	const void *request = change ? (const void *)q : (const void *)&q->mr;
	size_t size = change ? sizeof *q : sizeof q->mr;

	q->mr.kind = p->kind;
	q->mr.arena = p->arena;
	q->mr.offset = p->offset;
	return (own ? call_own : sn_call)(c, op, request, size, r, sizeof *r);
}

int sn_mr_call(struct sn_context *c, struct softnic_ctl_rereg_mr *q, struct softnic_ctl_reg_mr_reply *r)
{
	struct softnic_ctl_reg_mr_parts parts = { .region = q->region, .flags = q->flags };
	int err;

	if (sn_forked(c))
		return sn_call(c, SOFTNIC_CTL_OP_REG_MR, NULL, 0, NULL, 0); /* which says so */
	q->mr.access &= ~(uint32_t)IBV_ACCESS_ON_DEMAND; /* no page is ever missing: every region is on demand */
	err = sn_ranges_acquire(c, q->mr.addr, q->mr.length, parts.parts, &parts.count);
	if (err)
		return err;
	if (parts.count == 1) {
		err = call_whole(c, q, &parts.parts[0], r);
	} else {
		parts.mr = q->mr;
		parts.mr.kind = SOFTNIC_CTL_MEMORY_PARTS;
		err = call_own(c, SOFTNIC_CTL_OP_REG_MR_PARTS, &parts, sizeof parts, r, sizeof *r);
	}
	if (err)
		sn_ranges_release(q->mr.addr, q->mr.length);
	return err;
}

SN_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct softnic_ctl_rereg_mr q = {
		.mr = { .pd = pd->handle, .access = access, .addr = (uintptr_t)addr, .length = length,
			.base = access & IBV_ACCESS_ZERO_BASED ? 0 : iova },
	};
	struct softnic_ctl_reg_mr_reply r;
	struct sn_mr *m = calloc(1, sizeof *m);
	int err = m ? sn_mr_call(sn_context_of(pd->context), &q, &r) : ENOMEM;

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

void sn_mr_leave(struct sn_mr *m)
{
	if (sn_forked(sn_context_of(m->mr.context)))
		return; /* the parent's are the parent's */
	if (m->users)
		atomic_fetch_sub(m->users, 1);
	else
		sn_ranges_release((uintptr_t)m->mr.addr, m->mr.length);
	m->users = NULL;
}

SN_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err = sn_destroy(sn_context_of(mr->context), SOFTNIC_CTL_OP_DEREG_MR, mr->handle);

	if (!err) {
		sn_mr_leave(sn_mr_of(mr));
		free(sn_mr_of(mr));
	}
	return err;
}
