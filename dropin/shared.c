/* Memory that the program shares by itself: mappings of a memfd that is sealed as the daemon wants it, so that nobody can
 * shrink it under its users. The device gets the descriptor and maps the file too, instead of reading and writing each time
 * through the operating system.
 *
 * The program's descriptor is found by what the mapping says of its file. There may be none left, it may be for reading, or
 * the file may not be sealed: then the device cannot have it, which is no error. */
#include "memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Which the C library may not know yet, or may name by other rules. */
#define SEAL_SEAL 0x01
#define SEAL_SHRINK 0x02
#define SEAL_GROW 0x04
#define SEAL_WRITE 0x08
#define SEAL_FUTURE_WRITE 0x10

static struct sn_shared *files;

static bool is_file(int fd, const struct sn_shared *s, uint64_t *size)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return false;
	*size = (uint64_t)st.st_size;
	return st.st_ino == s->inode && major(st.st_dev) == s->major && minor(st.st_dev) == s->minor;
}

/* Whether the daemon maps it: huge pages it does not. */
static bool is_fit(int fd)
{
	int mode = fcntl(fd, F_GETFL), seals = fcntl(fd, F_GET_SEALS), need = SEAL_SEAL | SEAL_SHRINK | SEAL_GROW;
	struct statfs fs;

	return mode >= 0 && !(mode & O_PATH) && (mode & O_ACCMODE) == O_RDWR && seals >= 0 && (seals & need) == need &&
	       !(seals & (SEAL_WRITE | SEAL_FUTURE_WRITE)) && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* A descriptor of the file, to be closed, and how large it is; -1 if the device cannot have it. Other threads open and close
 * meanwhile: so what is judged is a duplicate. */
static int descriptor(const struct sn_shared *s, uint64_t *size)
{
	DIR *d = opendir("/proc/self/fd");
	int found = -1;

	if (!d)
		return -1;
	for (struct dirent *e; found < 0 && (e = readdir(d));) {
		int fd = e->d_name[0] == '.' ? -1 : atoi(e->d_name);

		if (fd < 0 || !is_file(fd, s, size))
			continue;
		found = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (found >= 0 && !(is_file(found, s, size) && is_fit(found))) {
			close(found);
			found = -1;
		}
	}
	closedir(d);
	*size -= *size % (uint64_t)sysconf(_SC_PAGESIZE);
	return found;
}

int sn_shared_arena(struct sn_shared *s, struct sn_context *c, uint32_t *handle)
{
	uint64_t size = 0;
	int fd, err;

	if (sn_known_find(s->arenas, c, handle))
		return 0;
	fd = descriptor(s, &size);
	if (fd < 0)
		return EBADF;
	if (!s->size)
		s->size = size;
	err = size && size == s->size ? sn_known_add(&s->arenas, c, fd, size, handle) : EINVAL;
	close(fd);
	return err;
}

struct sn_shared *sn_shared_enter(struct sn_context *c, const struct sn_map *v)
{
	struct sn_shared *s;
	uint32_t handle;

	for (s = files; s && !sn_shared_is(s, v); s = s->next)
		;
	if (!s) {
		s = calloc(1, sizeof *s);
		if (!s)
			return NULL;
		s->inode = v->inode;
		s->major = v->major;
		s->minor = v->minor;
		s->next = files;
		files = s;
	}
	s->users++;
	if (sn_shared_arena(s, c, &handle) == 0)
		return s;
	sn_shared_leave(s);
	return NULL;
}

void sn_shared_leave(struct sn_shared *s)
{
	struct sn_shared **p;

	if (--s->users)
		return;
	for (p = &files; *p != s; p = &(*p)->next)
		;
	*p = s->next;
	sn_known_free(s->arenas, true);
	free(s);
}

void sn_shared_forget(struct sn_context *c)
{
	for (struct sn_shared *s = files; s; s = s->next)
		sn_known_forget(&s->arenas, c);
}

void sn_shared_in_child(void)
{
	while (files) {
		struct sn_shared *s = files;

		files = s->next;
		sn_known_free(s->arenas, false);
		free(s);
	}
}
