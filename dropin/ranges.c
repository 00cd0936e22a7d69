/* Which pages of registered memory are where.
 *
 * The pages that regions touch are divided into ranges, in order of their address, which do not overlap. A range is in a
 * store, or in memory that the program shares by itself, or it is memory of the program's own that the device reaches through
 * the operating system. Each counts the regions that touch it. A page stays what it is as long as any does: two regions of the
 * same bytes reach them in the same way, which atomics need, and no access of the device meets a page while it is moved. */
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
	uintptr_t begin, end;
	uint32_t regions;
	struct sn_store *store;   /* both NULL: memory of the program's own */
	struct sn_shared *shared;
	uint64_t offset;
	uint64_t since, cost; /* if not: when it became so, and the processor time that it took, ns */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static size_t count, room;
static size_t moved; /* ranges in stores */

/* --- whether pages may move ----------------------------------------------------------------------------------------- */

/* Moving costs time, which is lost on programs that register for one message at a time. So a range that was moved for less
 * than BRIEF, or less than FACTOR times what moving it took, is counted as waste, and there may be so much waste: START,
 * and a twentieth of the time that passes. To look for shared memory in vain, or for as short a time, is waste of a second
 * kind, with bounds of its own. */
#define BRIEF 100000000u
#define FACTOR 50u
#define START 500000000u
#define SHARE 20u

static uint64_t waste, vain, first_time;

static bool affords(uint64_t wasted)
{
	uint64_t now = sn_clock_ns(CLOCK_MONOTONIC);

	if (!first_time)
		first_time = now;
	return wasted < START + (now - first_time) / SHARE;
}

static enum { NEVER, AUTO, ALWAYS } mode(void)
{
	const char *s = getenv("SOFTNICD_SWAP");

	if (!s || !*s || strcmp(s, "auto") == 0)
		return AUTO;
	if (strcmp(s, "always") == 0)
		return ALWAYS;
	if (strcmp(s, "never") != 0)
		sn_say(SN_SAY_SWAP, "$SOFTNICD_SWAP is \"%s\": it is auto, always or never; taken for never", s);
	return NEVER;
}

/* Each range that moves makes up to two more mappings, of which a process may have so many. */
static size_t most_moved(void)
{
	static size_t most;
	char text[32] = "";
	int fd;

	if (most)
		return most;
	fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (read(fd, text, sizeof text - 1) < 0)
			text[0] = 0;
		close(fd);
	}
	most = strtoul(text, NULL, 10) / 4;
	if (most < 1024)
		most = 1024;
	return most;
}

static bool may_move(bool *alone)
{
	int m = mode();

	*alone = m != NEVER && sn_alone();
	return m != NEVER && (*alone || m == ALWAYS) && moved < most_moved() && affords(waste);
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

static uintptr_t page_size(void)
{
	static uintptr_t size;

	if (!size)
		size = (uintptr_t)sysconf(_SC_PAGESIZE);
	return size;
}

static uintptr_t floor_page(uintptr_t a) { return a & ~(page_size() - 1); }

static uintptr_t ceil_page(uintptr_t a) { return floor_page(a + page_size() - 1); }

/* The index of the first range that ends behind at. */
static size_t find(uintptr_t at)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (ranges[mid].end <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool reserve(size_t n)
{
	size_t want = room ? room : 64;
	struct range *r;

	while (want < count + n)
		want *= 2;
	if (want == room)
		return true;
	r = realloc(ranges, want * sizeof *r);
	if (!r)
		return false;
	ranges = r;
	room = want;
	return true;
}

/* Puts a range where it belongs. There is room. */
static void insert(const struct range *r)
{
	size_t i = find(r->begin);

	memmove(&ranges[i + 1], &ranges[i], (count - i) * sizeof *ranges);
	ranges[i] = *r;
	count++;
	moved += r->store != NULL;
}

static void take_out(size_t i)
{
	moved -= ranges[i].store != NULL;
	count--;
	memmove(&ranges[i], &ranges[i + 1], (count - i) * sizeof *ranges);
}

/* Makes at a border of ranges of the program's own memory. */
static bool cut(uintptr_t at)
{
	size_t i = find(at);
	struct range after;

	if (i == count || ranges[i].begin >= at || ranges[i].store || ranges[i].shared)
		return true;
	if (!reserve(1))
		return false;
	after = ranges[i];
	after.begin = at;
	ranges[i].end = at;
	insert(&after);
	return true;
}

/* Finds the first gap in [*at, end): its beginning and end. */
static bool gap(uintptr_t *at, uintptr_t *to, uintptr_t end)
{
	for (size_t i = find(*at); *at < end; i++) {
		if (i == count || ranges[i].begin >= end) {
			*to = end;
			return true;
		}
		if (ranges[i].begin > *at) {
			*to = ranges[i].begin;
			return true;
		}
		*at = ranges[i].end;
	}
	return false;
}

/* --- moving --------------------------------------------------------------------------------------------------------- */

/* Whether pages of the mapping may move: nothing but ordinary memory. What was a store's and is private now, since the
 * program had several threads when its region ended, is ordinary too. */
static bool movable(const struct sn_map *v)
{
	return v->prot == (PROT_READ | PROT_WRITE) && (v->ordinary || (v->stored && !v->shared));
}

/* Moves the pages [begin, end) of one mapping, which is a store's file, or not. */
static void move(uintptr_t begin, uintptr_t end, bool alone, bool stored)
{
	struct range r = { .begin = begin };
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	uint64_t cpu;

	/* Nor the stack that this runs on, whoever has made it. */
	if (!reserve(1) || (here >= begin && here < end) || sn_store_take(end - begin, &r.store, &r.offset) != 0)
		return;
	cpu = sn_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	r.end = sn_swap_in(r.store, r.offset, begin, end, alone, stored);
	r.since = sn_clock_ns(CLOCK_MONOTONIC);
	r.cost = sn_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	if (r.end < end)
		sn_store_give(r.store, r.offset + (r.end - begin), end - r.end, true);
	if (r.end > begin)
		insert(&r);
}

/* Moves what may move of the pages [begin, end), which are in no range. */
static void move_gap(uintptr_t begin, uintptr_t end, bool alone)
{
	struct sn_maps m;
	struct sn_map v;

	if (!sn_maps_open(&m))
		return;
	while (sn_maps_next(&m, &v) && v.begin < end) {
		uintptr_t from = v.begin > begin ? v.begin : begin, to = v.end < end ? v.end : end;

		if (v.end <= begin || !movable(&v))
			continue;
		if (!alone)
			from = sn_stacks_end(&v, from, to);
		if (from < to)
			move(from, to, alone, v.stored);
	}
	sn_maps_close(&m);
}

/* --- sharing -------------------------------------------------------------------------------------------------------- */

/* Makes a range of those pages [begin, end) of one mapping that are in its file. Whether the device of c can have them. */
static bool share(struct sn_context *c, const struct sn_map *v, uintptr_t begin, uintptr_t end, uint64_t cpu)
{
	struct range r = { .begin = begin, .end = end, .offset = v->offset + (begin - v->begin) };

	r.shared = reserve(1) ? sn_shared_enter(c, v) : NULL;
	if (!r.shared)
		return false;
	if (r.offset >= r.shared->size) {
		sn_shared_leave(r.shared);
		return false;
	}
	if (end - begin > r.shared->size - r.offset)
		r.end = begin + (r.shared->size - r.offset);
	r.since = sn_clock_ns(CLOCK_MONOTONIC);
	r.cost = sn_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	insert(&r);
	return true;
}

/* Shares what the program shares of the pages [begin, end), which are in no range. */
static void share_gap(struct sn_context *c, uintptr_t begin, uintptr_t end)
{
	struct sn_map v;

	while (begin < end && affords(vain)) {
		uint64_t cpu = sn_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		bool found = sn_maps_shared(begin, end, &v);

		if (!found || !share(c, &v, v.begin > begin ? v.begin : begin, v.end < end ? v.end : end, cpu))
			vain += sn_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
		begin = found ? v.end : end;
	}
}

/* Whether [at, end) of a shared range still maps its file. A program may put something else there before its regions end. */
static bool is_in_place(const struct range *r, uintptr_t at, uintptr_t end)
{
	struct sn_map v;

	for (; at < end; at = v.end)
		if (!sn_maps_shared(at, end, &v) || v.begin > at || !sn_shared_is(r->shared, &v) ||
		    v.offset + (at - v.begin) != r->offset + (at - r->begin))
			return false;
	return true;
}

/* --- all pages of a region ------------------------------------------------------------------------------------------ */

/* Ends ranges of [begin, end) that no region touches. */
static void sweep(uintptr_t begin, uintptr_t end)
{
	size_t i = find(begin);

	while (i < count && ranges[i].begin < end) {
		struct range r = ranges[i];

		if (r.regions) {
			i++;
			continue;
		}
		take_out(i);
		if (r.store || r.shared) {
			uint64_t cpu = sn_clock_ns(CLOCK_THREAD_CPUTIME_ID), lived = sn_clock_ns(CLOCK_MONOTONIC) - r.since;

			if (r.store)
				sn_store_give(r.store, r.offset, r.end - r.begin, sn_swap_out(r.store, r.offset, r.begin, r.end));
			else
				sn_shared_leave(r.shared);
			r.cost += sn_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
			if (lived < BRIEF || lived / FACTOR < r.cost)
				*(r.store ? &waste : &vain) += r.cost;
		}
	}
}

/* Makes ranges of all pages of [begin, end), of which those of [first, last) are whole pages of a region. */
static int cover(struct sn_context *c, uintptr_t begin, uintptr_t end, uintptr_t first, uintptr_t last)
{
	bool alone;
	uintptr_t at, to;

	if (!cut(begin) || !cut(end))
		return ENOMEM;
	for (at = begin; gap(&at, &to, end); at = to)
		share_gap(c, at, to);
	at = first;
	if (gap(&at, &to, last) && may_move(&alone))
		for (at = first; gap(&at, &to, last); at = to)
			move_gap(at, to, alone);
	for (at = begin; gap(&at, &to, end); at = to) {
		struct range own = { .begin = at, .end = to };

		if (!reserve(1))
			return ENOMEM;
		insert(&own);
	}
	return 0;
}

/* --- regions -------------------------------------------------------------------------------------------------------- */

/* Adds a part. When there are too many, the rest of the region is reached through the operating system, which works for all
 * memory. */
static void add_part(struct softnic_ctl_memory_part *parts, uint32_t *n, const struct softnic_ctl_memory_part *p)
{
	struct softnic_ctl_memory_part *last = &parts[*n ? *n - 1 : 0];

	if (*n && last->kind == SOFTNIC_CTL_MEMORY_PROCESS && p->kind == SOFTNIC_CTL_MEMORY_PROCESS) {
		last->length += p->length;
	} else if (*n && last->kind == p->kind && last->arena == p->arena && last->offset + last->length == p->offset) {
		last->length += p->length;
	} else if (*n < SOFTNIC_CTL_MAX_MEMORY_PARTS) {
		parts[(*n)++] = *p;
	} else {
		last->kind = SOFTNIC_CTL_MEMORY_PROCESS;
		last->arena = 0;
		last->offset = 0;
		last->length += p->length;
	}
}

/* Writes down where [addr, end) is. Ranges cover it. */
static uint32_t describe(struct sn_context *c, uintptr_t addr, uintptr_t end, struct softnic_ctl_memory_part *parts)
{
	uint32_t n = 0;

	for (size_t i = find(addr); addr < end; i++) {
		const struct range *r = &ranges[i];
		uintptr_t to = r->end < end ? r->end : end;
		struct softnic_ctl_memory_part p = { .kind = SOFTNIC_CTL_MEMORY_PROCESS, .length = to - addr };

		if (r->store && sn_store_arena(r->store, c, &p.arena) == 0) {
			p.kind = SOFTNIC_CTL_MEMORY_SHARED;
			p.offset = r->offset + (addr - r->begin);
		} else if (r->shared && is_in_place(r, floor_page(addr), ceil_page(to)) && sn_shared_arena(r->shared, c, &p.arena) == 0) {
			p.kind = SOFTNIC_CTL_MEMORY_SHARED;
			p.offset = r->offset + (addr - r->begin);
		}
		add_part(parts, &n, &p);
		addr = to;
	}
	return n;
}

int sn_ranges_acquire(struct sn_context *c, uintptr_t addr, size_t length, struct softnic_ctl_memory_part *parts, uint32_t *n)
{
	uintptr_t begin = floor_page(addr), end = ceil_page(addr + length), first = ceil_page(addr), last = floor_page(addr + length);
	int err;

	/* What is nothing, or passes the end of the address space, is for the daemon to refuse. */
	*n = 1;
	parts[0] = (struct softnic_ctl_memory_part){ .kind = SOFTNIC_CTL_MEMORY_PROCESS, .length = length };
	if (length == 0 || begin >= end || end - begin < length)
		return 0;
	pthread_mutex_lock(&mutex);
	err = cover(c, begin, end, first < last ? first : last, last);
	if (!err) {
		for (size_t i = find(begin); i < count && ranges[i].begin < end; i++)
			ranges[i].regions++;
		*n = describe(c, addr, addr + length, parts);
	} else {
		sweep(begin, end);
	}
	pthread_mutex_unlock(&mutex);
	return err;
}

void sn_ranges_release(uintptr_t addr, size_t length)
{
	uintptr_t begin = floor_page(addr), end = ceil_page(addr + length);

	if (length == 0 || begin >= end || end - begin < length)
		return;
	pthread_mutex_lock(&mutex);
	for (size_t i = find(begin); i < count && ranges[i].begin < end; i++)
		ranges[i].regions--;
	sweep(begin, end);
	pthread_mutex_unlock(&mutex);
}

void sn_ranges_forget(struct sn_context *c)
{
	pthread_mutex_lock(&mutex);
	sn_stores_forget(c);
	sn_shared_forget(c);
	pthread_mutex_unlock(&mutex);
}

/* --- forks ---------------------------------------------------------------------------------------------------------- */

/* A copy of pages that were moved, for the child: pages of a store are the parent's and the device's, whatever a fork makes
 * of others. Systems do the same with memory that an adapter has pinned. */
struct copy {
	uintptr_t at;
	size_t size;
	int prot;
	void *mem; /* NULL: there was no memory for it */
	int fd;
	uint64_t offset;
	struct copy *next;
};

static struct copy *copies;

static void copy_for_child(const struct range *r, uintptr_t at, uintptr_t end, int prot)
{
	struct copy *c = malloc(sizeof *c);
	void *mem = mmap(NULL, end - at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!c) {
		if (mem != MAP_FAILED)
			munmap(mem, end - at);
		return;
	}
	if (mem == MAP_FAILED)
		mem = NULL;
	else if (prot & PROT_READ)
		memcpy(mem, (const void *)at, end - at);
	*c = (struct copy){ at, end - at, prot, mem, r->store->fd, r->offset + (at - r->begin), copies };
	copies = c;
}

void sn_ranges_before_fork(void)
{
	struct sn_maps m;
	struct sn_map v;
	size_t i = 0;

	pthread_mutex_lock(&mutex);
	if (moved == 0 || !sn_maps_open(&m))
		return;
	while (i < count && sn_maps_next(&m, &v)) {
		while (i < count && ranges[i].end <= v.begin)
			i++;
		for (size_t k = i; k < count && ranges[k].begin < v.end; k++) {
			const struct range *r = &ranges[k];
			uintptr_t at = r->begin > v.begin ? r->begin : v.begin;

			if (r->store && v.shared && sn_store_is(r->store, &v, at, r->offset + (at - r->begin)))
				copy_for_child(r, at, r->end < v.end ? r->end : v.end, v.prot);
		}
	}
	sn_maps_close(&m);
}

void sn_ranges_in_parent(void)
{
	while (copies) {
		struct copy *c = copies;

		copies = c->next;
		if (c->mem)
			munmap(c->mem, c->size);
		free(c);
	}
	pthread_mutex_unlock(&mutex);
}

void sn_ranges_in_child(void)
{
	while (copies) {
		struct copy *c = copies;

		copies = c->next;
		/* Without a copy the child's writes are its own at least. */
		if (!c->mem || mremap(c->mem, c->size, c->size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)c->at) == MAP_FAILED)
			mmap((void *)c->at, c->size, c->prot, MAP_PRIVATE | MAP_FIXED, c->fd, (off_t)c->offset);
		else if (c->prot != (PROT_READ | PROT_WRITE))
			mprotect((void *)c->at, c->size, c->prot);
		free(c);
	}
	sn_stores_in_child();
	sn_shared_in_child();
	count = moved = 0;
	pthread_mutex_unlock(&mutex);
}
