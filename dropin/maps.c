/* /proc/self/maps. */
#include "memory.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

bool sn_maps_open(struct sn_maps *m)
{
	m->fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	m->used = m->next = 0;
	return m->fd >= 0;
}

void sn_maps_close(struct sn_maps *m) { close(m->fd); }

/* Reads on, behind what is left of the text. */
static bool more(struct sn_maps *m)
{
	ssize_t n;

	memmove(m->text, m->text + m->next, m->used - m->next);
	m->used -= m->next;
	m->next = 0;
	do
		n = read(m->fd, m->text + m->used, sizeof m->text - m->used);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		m->used += (size_t)n;
	return n > 0;
}

/* The next line without its end; NULL after the last. One that is longer than the buffer is cut: what is cut is a name. */
static char *next_line(struct sn_maps *m)
{
	char *line, *end;

	while (!(end = memchr(m->text + m->next, '\n', m->used - m->next)))
		if (!more(m)) {
			if (m->used - m->next < sizeof m->text)
				return NULL;
			/* All of the buffer is one line, whose rest is dropped. */
			m->text[sizeof m->text - 1] = '\n';
		}
	line = m->text + m->next;
	*end = 0;
	m->next = (size_t)(end - m->text) + 1;
	return line;
}

static uint64_t number(char **p, unsigned int base)
{
	uint64_t n = 0;

	for (;; (*p)++) {
		char c = **p;
		unsigned int digit = c >= '0' && c <= '9' ? (unsigned int)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned int)(c - 'a') + 10 : 16;

		if (digit >= base)
			return n;
		n = n * base + digit;
	}
}

/* What a mapping is of, by its name. */
static void set_name(struct sn_map *v, const char *name)
{
	v->stored = strncmp(name, "/memfd:" SN_STORE_NAME, strlen("/memfd:" SN_STORE_NAME)) == 0;
	v->memfd = !v->stored && strncmp(name, "/memfd:", strlen("/memfd:")) == 0;
	v->ordinary = !v->shared && v->inode == 0 && (*name == 0 || strcmp(name, "[heap]") == 0 || strncmp(name, "[anon:", 6) == 0);
}

/* "7f0e4c000000-7f0e4c021000 rw-p 00000000 00:00 0    [heap]" */
static void parse(char *p, struct sn_map *v)
{
	v->begin = number(&p, 16);
	p += *p == '-';
	v->end = number(&p, 16);
	p += *p == ' ';
	v->prot = (p[0] == 'r' ? PROT_READ : 0) | (p[0] && p[1] == 'w' ? PROT_WRITE : 0) | (p[0] && p[1] && p[2] == 'x' ? PROT_EXEC : 0);
	v->shared = strnlen(p, 4) == 4 && p[3] == 's';
	p += strnlen(p, 5);
	v->offset = number(&p, 16);
	p += *p == ' ';
	v->major = (unsigned int)number(&p, 16);
	p += *p == ':';
	v->minor = (unsigned int)number(&p, 16);
	p += *p == ' ';
	v->inode = number(&p, 10);
	while (*p == ' ')
		p++;
	set_name(v, p);
}

bool sn_maps_next(struct sn_maps *m, struct sn_map *v)
{
	char *line = next_line(m);

	if (line)
		parse(line, v);
	return line != NULL;
}

/* struct procmap_query of linux/fs.h, since Linux 6.11. */
struct query {
	uint64_t size, flags, at;
	uint64_t begin, end, rights, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};

#define ASK _IOWR('f', 17, struct query)
#define COVERING_OR_NEXT 0x10u

/* Asks for the mapping that has an address, or is the next behind it: 0, ENOENT, or what else went wrong. */
static int ask(struct sn_maps *m, uintptr_t at, struct sn_map *v)
{
	struct query q = {
		.size = sizeof q, .flags = COVERING_OR_NEXT, .at = at, .name = (uintptr_t)m->text, .name_size = sizeof m->text,
	};

	memset(m->text, 0, 32); /* what is looked at: who watches memory does not know that the system writes there */
	if (ioctl(m->fd, ASK, &q) != 0)
		return errno;
	if (q.end <= at)
		return EIO;
	*v = (struct sn_map){
		.begin = q.begin, .end = q.end, .offset = q.offset, .inode = q.inode, .major = q.major, .minor = q.minor,
		.prot = (q.rights & 1 ? PROT_READ : 0) | (q.rights & 2 ? PROT_WRITE : 0) | (q.rights & 4 ? PROT_EXEC : 0),
		.shared = q.rights & 8,
	};
	set_name(v, q.name_size ? m->text : "");
	return 0;
}

static bool is_shared(const struct sn_map *v)
{
	return v->shared && v->memfd && (v->prot & (PROT_READ | PROT_WRITE)) == (PROT_READ | PROT_WRITE);
}

bool sn_maps_shared(uintptr_t at, uintptr_t end, struct sn_map *v)
{
	struct sn_maps m;
	bool found = false;
	int err = 0;

	if (!sn_maps_open(&m))
		return false;
	for (uintptr_t next = at; !found && next < end && (err = ask(&m, next, v)) == 0; next = v->end)
		found = v->begin < end && is_shared(v);
	if (err && err != ENOENT)
		while (!found && sn_maps_next(&m, v) && v->begin < end)
			found = v->end > at && is_shared(v);
	sn_maps_close(&m);
	return found;
}
