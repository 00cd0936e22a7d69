/* Opening and closing a device. */
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Checks the device page that the daemon has sent. */
static int check_page(struct sn_context *c, int fd)
{
	void *p = mmap(NULL, SOFTNIC_DEVICE_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	const uint32_t *words = p;

	if (p == MAP_FAILED)
		return errno;
	c->page = p;
	if (words[SOFTNIC_OFF_PAGE_MAGIC / 4] != SOFTNIC_DEVICE_PAGE_MAGIC)
		return EPROTO;
	if (words[SOFTNIC_OFF_PAGE_VERSION / 4] != SOFTNIC_VERSION)
		return EPROTONOSUPPORT;
	return 0;
}

static int open_session(struct sn_context *c, struct sn_device *d)
{
	struct softnic_ctl_open q = { .abi_version = SOFTNIC_VERSION };
	struct softnic_ctl_open_reply r;
	struct sn_fds bell = { .n = 1 }, got;
	int err = sn_conn_open(&c->conn);

	if (err)
		return err;
	err = sn_memory_create("softnic-doorbell", SOFTNIC_DOORBELL_SIZE, &bell.fd[0], &c->bell);
	if (err)
		return err;
	memcpy(q.name, d->ibv.name, sizeof q.name);
	err = sn_call_fds(c, SOFTNIC_CTL_OP_OPEN, &q, sizeof q, &r, sizeof r, &bell, &got);
	close(bell.fd[0]);
	if (err)
		return err;
	if (got.n != 3) {
		for (int i = 0; i < got.n; i++)
			close(got.fd[i]);
		return EPROTO;
	}
	c->bell_fd = got.fd[1];
	sn_public(c)->async_fd = got.fd[2];
	c->reclaim_poll = r.reclaim_poll;
	err = check_page(c, got.fd[0]);
	close(got.fd[0]);
	return err ? err : sn_make_blocking(sn_public(c)->async_fd);
}

/* Takes apart what open_session has made. */
static void close_session(struct sn_context *c)
{
	if (sn_public(c)->async_fd >= 0)
		close(sn_public(c)->async_fd);
	if (c->bell_fd >= 0)
		close(c->bell_fd);
	sn_conn_close(&c->conn);
	sn_arenas_unmap(c);
	if (c->page)
		munmap(c->page, SOFTNIC_DEVICE_PAGE_SIZE);
	if (c->bell)
		munmap(c->bell, SOFTNIC_DOORBELL_SIZE);
	for (size_t i = 0; i < sizeof c->leaves / sizeof c->leaves[0]; i++)
		free(atomic_load_explicit(&c->leaves[i], memory_order_relaxed));
	free(c->objects.slots);
	sn_device_unref(c->device);
	free(c);
}

static void install(struct sn_context *c)
{
	sn_install_unsupported(c);
	sn_install_query(c);
	sn_install_cq(c);
	sn_install_qp(c);
	sn_install_post(c);
	sn_install_poll(c);
	sn_install_srq(c);
	sn_install_xrc(c);
	sn_install_mw(c);
	sn_install_extended(c);
}

SN_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct sn_device *d = (struct sn_device *)device;
	struct sn_context *c = calloc(1, sizeof *c);
	struct ibv_context *p;
	int err;

	if (!c)
		return NULL; /* errno is set */
	p = sn_public(c);
	c->device = sn_device_ref(d);
	c->conn.fd = c->bell_fd = p->async_fd = -1;
	pthread_mutex_init(&c->describing, NULL);
	pthread_mutex_init(&c->arenas.mutex, NULL);
	pthread_mutex_init(&c->objects.mutex, NULL);
	pthread_mutex_init(&p->mutex, NULL);
	p->device = device;
	p->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->verbs.sz = sizeof c->verbs;
	install(c);
	err = open_session(c, d);
	if (!err)
		err = sn_call(c, SOFTNIC_CTL_OP_QUERY_DEVICE, NULL, 0, &c->attr, sizeof c->attr);
	if (err) {
		sn_say(SN_SAY_DAEMON, "device %s cannot be opened: %s", d->ibv.name, strerror(err));
		close_session(c);
		errno = err;
		return NULL;
	}
	p->num_comp_vectors = (int)c->attr.num_comp_vectors;
	p->cmd_fd = c->conn.fd;
	sn_fork_add(c);
	return p;
}

SN_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct sn_context *c = sn_context_of(context);

	sn_fork_remove(c);
	sn_ranges_forget(c);
	close_session(c);
	return 0;
}
