/* Stores: memory into which pages of registered memory move.
 *
 * A store is a file in memory, sealed as the daemon wants it, and larger than what is in it: what nobody has written takes
 * no memory. So thousands of regions cost a handful of descriptors and mappings in the daemon. Contexts whose regions are
 * in a store make it known to their device as an arena. */
#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MIN_SIZE (1ull << 20)
#define MAX_SIZE (256ull << 20)

struct sn_known {
	struct sn_context *context;
	uint32_t handle;
	struct sn_known *next;
};

static struct sn_store *stores;

bool sn_known_find(const struct sn_known *arenas, const struct sn_context *c, uint32_t *handle)
{
	for (; arenas; arenas = arenas->next)
		if (arenas->context == c) {
			*handle = arenas->handle;
			return true;
		}
	return false;
}

int sn_known_add(struct sn_known **arenas, struct sn_context *c, int fd, uint64_t size, uint32_t *handle)
{
	struct softnic_ctl_add_arena q = { .size = size };
	struct softnic_ctl_handle_reply r;
	struct sn_fds fds = { .n = 1, .fd = { fd } };
	struct sn_known *a = malloc(sizeof *a);
	int err = a ? sn_call_fds(c, SOFTNIC_CTL_OP_ADD_ARENA, &q, sizeof q, &r, sizeof r, &fds, NULL) : ENOMEM;

	if (err) {
		free(a);
		return err;
	}
	*a = (struct sn_known){ c, r.handle, *arenas };
	*arenas = a;
	*handle = r.handle;
	return 0;
}

void sn_known_forget(struct sn_known **arenas, const struct sn_context *c)
{
	while (*arenas)
		if ((*arenas)->context == c) {
			struct sn_known *a = *arenas;

			*arenas = a->next;
			free(a);
		} else {
			arenas = &(*arenas)->next;
		}
}

void sn_known_free(struct sn_known *arenas, bool remove)
{
	for (struct sn_known *next; arenas; arenas = next) {
		next = arenas->next;
		if (remove && !sn_forked(arenas->context))
			sn_destroy(arenas->context, SOFTNIC_CTL_OP_REMOVE_ARENA, arenas->handle);
		free(arenas);
	}
}

static int make(uint64_t need)
{
	uint64_t total = 0, size;
	struct sn_store *s = calloc(1, sizeof *s);
	struct stat st;
	int err = s ? 0 : ENOMEM;

	for (struct sn_store *o = stores; o; o = o->next)
		total += o->size;
	size = total < MIN_SIZE ? MIN_SIZE : total > MAX_SIZE ? MAX_SIZE : total;
	size = size < need ? need : size;
	if (!err)
		err = sn_memfd_create(SN_STORE_NAME, size, &s->fd);
	if (err) {
		free(s);
		return err;
	}
	if (fstat(s->fd, &st) != 0 || !sn_spans_give(&s->free, 0, size)) {
		close(s->fd);
		free(s);
		return ENOMEM;
	}
	s->size = size;
	s->inode = st.st_ino;
	s->major = major(st.st_dev);
	s->minor = minor(st.st_dev);
	s->next = stores;
	stores = s;
	return 0;
}

int sn_store_take(uint64_t size, struct sn_store **store, uint64_t *offset)
{
	int err;

	for (int tries = 0; tries < 2; tries++) {
		for (struct sn_store *s = stores; s; s = s->next)
			if (sn_spans_take(&s->free, size, offset)) {
				s->taken += size;
				*store = s;
				return 0;
			}
		err = make(size);
		if (err)
			return err;
	}
	return ENOMEM;
}

static void drop(struct sn_store *s)
{
	struct sn_store **p;

	for (p = &stores; *p != s; p = &(*p)->next)
		;
	*p = s->next;
	sn_known_free(s->arenas, true);
	sn_spans_free(s->free);
	close(s->fd);
	free(s);
}

void sn_store_give(struct sn_store *s, uint64_t offset, uint64_t size, bool clean)
{
	bool spare = false;

	if (clean)
		clean = fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) == 0 &&
			sn_spans_give(&s->free, offset, size);
	s->torn |= !clean;
	s->taken -= size;
	if (s->taken)
		return;
	/* A small one is kept, so that a single region does not make and drop one each time. */
	for (struct sn_store *o = stores; o; o = o->next)
		spare |= o != s && !o->torn && o->taken == 0;
	if (s->torn || spare || s->size > MIN_SIZE)
		drop(s);
}

int sn_store_arena(struct sn_store *s, struct sn_context *c, uint32_t *handle)
{
	if (sn_known_find(s->arenas, c, handle))
		return 0;
	return sn_known_add(&s->arenas, c, s->fd, s->size, handle);
}

void sn_stores_forget(struct sn_context *c)
{
	for (struct sn_store *s = stores; s; s = s->next)
		sn_known_forget(&s->arenas, c);
}

void sn_stores_in_child(void)
{
	while (stores) {
		struct sn_store *s = stores;

		stores = s->next;
		close(s->fd);
		sn_spans_free(s->free);
		sn_known_free(s->arenas, false);
		free(s);
	}
}
