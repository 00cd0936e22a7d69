/* Memory for rings, carved out of few large shared memories, so that ten thousand queue pairs cost a handful of mappings
 * here and in the daemon.
 *
 * The set grows by memories as large as everything that it has already, which bounds their number by the logarithm of
 * what is used. A memory that became free all at once is given back, but for a small one, so that making and destroying a
 * single object does not map and unmap each time. */
#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIN_SIZE (256ull << 10)
#define MAX_SIZE (64ull << 20)
#define PAGE 4096ull
#define NOEXEC_SEAL 8u /* MFD_NOEXEC_SEAL, which the C library may not know yet */

struct sn_arena {
	uint32_t handle;
	uint8_t *mem;
	uint64_t size;
	struct sn_span *free;
	struct sn_arena *next;
};

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static int map_new(struct sn_context *c, uint64_t size, struct sn_arena *a)
{
	struct softnic_ctl_add_arena q = { .size = size };
	struct softnic_ctl_handle_reply r;
	struct sn_fds fd = { .n = 1 };
	int err = sn_memory_create("softnic-arena", size, &fd.fd[0], &a->mem);

	if (err)
		return err;
	err = sn_call_fds(c, SOFTNIC_CTL_OP_ADD_ARENA, &q, sizeof q, &r, sizeof r, &fd, NULL);
	close(fd.fd[0]); /* the mapping stays */
	if (err) {
		munmap(a->mem, size);
		return err;
	}
	a->handle = r.handle;
	a->size = size;
	return 0;
}

/* Adds a memory with room for need bytes. The set is locked. */
static int grow(struct sn_context *c, uint64_t need)
{
	struct sn_arenas *s = &c->arenas;
	uint64_t size = s->total < MIN_SIZE ? MIN_SIZE : s->total > MAX_SIZE ? MAX_SIZE : s->total;
	struct sn_arena *a = calloc(1, sizeof *a);
	int err = a ? 0 : ENOMEM;

	need = round_up(need, PAGE);
	size = size < need ? need : round_up(size, PAGE);
	if (!err) {
		err = map_new(c, size, a);
		if (err && err != EIO && size > need) /* a quota may have room for what is needed */
			err = map_new(c, need, a);
	}
	if (err) {
		free(a);
		return err;
	}
	if (!sn_spans_give(&a->free, 0, a->size)) {
		sn_call_handle(c, SOFTNIC_CTL_OP_REMOVE_ARENA, a->handle);
		munmap(a->mem, a->size);
		free(a);
		return ENOMEM;
	}
	a->next = s->first;
	s->first = a;
	s->total += a->size;
	return 0;
}

/* Takes the first span that fits. Sizes are multiples of a cache line, so every offset is on one. */
static bool carve(struct sn_arena *a, uint64_t size, struct sn_block *b)
{
	uint64_t offset;

	if (!sn_spans_take(&a->free, size, &offset))
		return false;
	*b = (struct sn_block){ .in = a, .mem = a->mem + offset, .size = size, .arena = a->handle, .offset = offset };
	return true;
}

int sn_block_alloc(struct sn_context *c, uint64_t size, struct sn_block *b)
{
	struct sn_arenas *s = &c->arenas;
	int err = 0;

	memset(b, 0, sizeof *b);
	if (atomic_load(&c->state) == SN_FORKED)
		return EIO; /* the parent uses what looks free here */
	if (size == 0 || size > UINT64_MAX / 4)
		return ENOMEM;
	size = round_up(size, SOFTNIC_CACHE_LINE);
	pthread_mutex_lock(&s->mutex);
	for (struct sn_arena *a = s->first; a && !b->mem; a = a->next)
		carve(a, size, b);
	if (!b->mem) {
		err = grow(c, size);
		if (!err && !carve(s->first, size, b))
			err = ENOMEM;
	}
	pthread_mutex_unlock(&s->mutex);
	return err;
}

static bool is_empty(const struct sn_arena *a) { return sn_spans_first(a->free) == a->size; }

static void unmap(struct sn_arena *a)
{
	munmap(a->mem, a->size);
	sn_spans_free(a->free);
	free(a);
}

/* Gives a memory back that is free as a whole, unless it is the small one that is kept. The set is locked. */
static void give_back(struct sn_context *c, struct sn_arena *a)
{
	struct sn_arenas *s = &c->arenas;
	bool spare = false;
	struct sn_arena **p;

	for (struct sn_arena *o = s->first; o; o = o->next)
		spare |= o != a && is_empty(o);
	if (!spare && a->size <= MIN_SIZE)
		return;
	for (p = &s->first; *p != a; p = &(*p)->next)
		;
	*p = a->next;
	s->total -= a->size;
	sn_call_handle(c, SOFTNIC_CTL_OP_REMOVE_ARENA, a->handle);
	unmap(a);
}

void sn_block_free(struct sn_context *c, struct sn_block *b)
{
	if (!b->mem || sn_forked(c))
		return;
	pthread_mutex_lock(&c->arenas.mutex);
	sn_spans_give(&b->in->free, b->offset, b->size); /* without memory for the span it is lost to this context */
	if (is_empty(b->in))
		give_back(c, b->in);
	pthread_mutex_unlock(&c->arenas.mutex);
	memset(b, 0, sizeof *b);
}

void sn_arenas_unmap(struct sn_context *c)
{
	for (struct sn_arena *a = c->arenas.first, *next; a; a = next) {
		next = a->next;
		unmap(a);
	}
	c->arenas.first = NULL;
}

int sn_memfd_create(const char *name, uint64_t size, int *fd)
{
	int err;

	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL);
	if (*fd < 0 && errno == EINVAL)
		*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* Linux before 6.3 */
	if (*fd < 0)
		return errno;
	/* The daemon maps only what cannot shrink under it. */
	if (ftruncate(*fd, (off_t)size) == 0 && fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return 0;
	err = errno;
	close(*fd);
	return err;
}

int sn_memory_create(const char *name, uint64_t size, int *fd, uint8_t **mem)
{
	int err = sn_memfd_create(name, size, fd);
	void *p;

	if (err)
		return err;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED) {
		err = errno;
		close(*fd);
		return err;
	}
	*mem = p;
	return 0;
}
