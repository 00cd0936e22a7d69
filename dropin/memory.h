/* Registered memory: what its files share.
 *
 * The device reaches what a program registers in two ways. Memory of the program's own it reads and writes by system
 * calls: that works for everything, and costs a call and a copy each time. Memory that it has mapped too it touches
 * itself. So the whole pages inside a region, if they are ordinary private memory, are moved into memory that both map
 * (swap.c), at the addresses that they have. Memory that the program shares already stays where it is, and the device maps
 * it too, if it may (shared.c). What the program may notice is in docs/registered-memory.md.
 *
 *	ranges.c  which pages are where, and by how many regions they are used
 *	swap.c    moves pages there and back
 *	stacks.c  which pages must not be moved while others run
 *	store.c   the memory into which they move
 *	shared.c  the memory that the program shares by itself
 *	maps.c    what the operating system says of the pages
 *	mr.c      the calls of the interface
 */
#ifndef SOFTNIC_MEMORY_H
#define SOFTNIC_MEMORY_H

#include "softnic.h"

/* --- free spans of a memory (spans.c) ------------------------------------------------------------------------------- */

/* The list is NULL in the beginning. */
struct sn_span;

bool sn_spans_take(struct sn_span **spans, uint64_t size, uint64_t *offset); /* false: none is as large */
bool sn_spans_give(struct sn_span **spans, uint64_t offset, uint64_t size);  /* false: there is no memory for the span */
uint64_t sn_spans_first(const struct sn_span *spans);                        /* size of the first; 0 if there is none */
void sn_spans_free(struct sn_span *spans);

/* A memory of zeroes that the daemon can map (arena.c). */
int sn_memfd_create(const char *name, uint64_t size, int *fd);

/* --- the mappings of this process (maps.c) -------------------------------------------------------------------------- */

struct sn_map {
	uintptr_t begin, end;
	uint64_t offset, inode; /* of the file */
	unsigned int major, minor;
	int prot;
	bool shared;
	bool ordinary; /* private memory that no file is behind, no stack either */
	bool stored;   /* of a file of store.c */
	bool memfd;    /* of another memfd */
};

struct sn_maps {
	int fd;
	size_t used, next;
	char text[4096];
};

/* Goes through the mappings in order of their address. Everything is on the stack: the heap may be what is moved. */
bool sn_maps_open(struct sn_maps *m);
bool sn_maps_next(struct sn_maps *m, struct sn_map *v);
void sn_maps_close(struct sn_maps *m);

/* The first mapping of [at, end) through which the program reads and writes a memfd, and others who have it too. On systems
 * that can be asked about one address (Linux 6.11) this costs the same however many mappings there are. */
bool sn_maps_shared(uintptr_t at, uintptr_t end, struct sn_map *v);

/* --- files as devices know them (store.c) ---------------------------------------------------------------------------- */

/* A list of contexts, and the arena by which the device of each knows a file. NULL in the beginning. */
struct sn_known;

bool sn_known_find(const struct sn_known *arenas, const struct sn_context *c, uint32_t *handle);
int sn_known_add(struct sn_known **arenas, struct sn_context *c, int fd, uint64_t size, uint32_t *handle);
void sn_known_forget(struct sn_known **arenas, const struct sn_context *c); /* is being closed */
void sn_known_free(struct sn_known *arenas, bool remove); /* remove: from the devices too */

/* --- memory to move into (store.c) ---------------------------------------------------------------------------------- */

#define SN_STORE_NAME "softnic-region"

/* Descriptor and number of the file, and the places in it. All stores belong to the process, not to a context; the
 * functions are called with the lock of ranges.c held. */
struct sn_store {
	int fd;
	uint64_t size, inode;
	unsigned int major, minor;
	struct sn_span *free;
	uint64_t taken; /* bytes that are in use */
	bool torn;      /* places in it were lost */
	struct sn_known *arenas;
	struct sn_store *next;
};

int sn_store_take(uint64_t size, struct sn_store **store, uint64_t *offset);
/* clean: nobody maps the place any more. Otherwise it is never given again. */
void sn_store_give(struct sn_store *s, uint64_t offset, uint64_t size, bool clean);
int sn_store_arena(struct sn_store *s, struct sn_context *c, uint32_t *handle); /* as the device of c knows it */
void sn_stores_forget(struct sn_context *c); /* is being closed */
void sn_stores_in_child(void);

/* Whether v maps the place at offset of s, for the address at. */
static inline bool sn_store_is(const struct sn_store *s, const struct sn_map *v, uintptr_t at, uint64_t offset)
{
	return v->stored && v->inode == s->inode && v->major == s->major && v->minor == s->minor && at >= v->begin && at < v->end &&
	       v->offset + (at - v->begin) == offset;
}

/* --- memory that the program shares by itself (shared.c) ------------------------------------------------------------- */

/* A sealed memfd of the program in which there are ranges. No descriptor of it is held: the program's is looked for when a
 * device is to learn of the file. The functions are called with the lock of ranges.c held. */
struct sn_shared {
	uint64_t size, inode; /* of whole pages, which never change */
	unsigned int major, minor;
	uint32_t users; /* ranges */
	struct sn_known *arenas;
	struct sn_shared *next;
};

/* The file that v maps, which has one user more; NULL: the device cannot have it. */
struct sn_shared *sn_shared_enter(struct sn_context *c, const struct sn_map *v);
void sn_shared_leave(struct sn_shared *s);
int sn_shared_arena(struct sn_shared *s, struct sn_context *c, uint32_t *handle); /* as the device of c knows it */
void sn_shared_forget(struct sn_context *c); /* is being closed */
void sn_shared_in_child(void);

static inline bool sn_shared_is(const struct sn_shared *s, const struct sn_map *v)
{
	return v->inode == s->inode && v->major == s->major && v->minor == s->minor;
}

/* --- moving pages (swap.c) ------------------------------------------------------------------------------------------ */

bool sn_alone(void); /* this thread is the only one */

/* Moves the pages [begin, end) of one mapping to offset of the store, and returns the end of what was moved: less when the
 * system refuses. What is there stays, whatever other threads write meanwhile. alone: there are none; stored: the mapping is
 * of a store's file, since the pages were moved before, and back. */
uintptr_t sn_swap_in(const struct sn_store *s, uint64_t offset, uintptr_t begin, uintptr_t end, bool alone,
		     bool stored);

/* Gives the program private memory again with what is at offset of the store. Whether the place is free of users. */
bool sn_swap_out(const struct sn_store *s, uint64_t offset, uintptr_t begin, uintptr_t end);

/* --- stacks (stacks.c) ---------------------------------------------------------------------------------------------- */

/* The address in [begin, end), which v maps, from which on there is no stack of a thread: end if there is none. Stacks must
 * not be moved while their threads run. */
uintptr_t sn_stacks_end(const struct sn_map *v, uintptr_t begin, uintptr_t end);

/* --- ranges (ranges.c) ---------------------------------------------------------------------------------------------- */

/* Finds out how the device gets at [addr, addr+length), which it may use until sn_ranges_release: parts as the device of c
 * wants them, SOFTNIC_CTL_MAX_MEMORY_PARTS at most. */
int sn_ranges_acquire(struct sn_context *c, uintptr_t addr, size_t length, struct softnic_ctl_memory_part *parts, uint32_t *count);
void sn_ranges_release(uintptr_t addr, size_t length);
void sn_ranges_forget(struct sn_context *c); /* is being closed */

/* Around a fork. The child gets a copy of what was moved, as it has of everything else. */
void sn_ranges_before_fork(void);
void sn_ranges_in_parent(void);
void sn_ranges_in_child(void);

/* --- registering (mr.c) --------------------------------------------------------------------------------------------- */

/* Registers the memory that q.mr names by address and length, or makes that of region q.region of it. */
int sn_mr_call(struct sn_context *c, struct softnic_ctl_rereg_mr *q, struct softnic_ctl_reg_mr_reply *r);
void sn_mr_leave(struct sn_mr *m); /* the device does not touch the memory of m any more */

#endif
