/* A preload for programs that look for RDMA devices in /sys/class/infiniband themselves instead of asking libibverbs: UCX,
 * NCCL and scripts. `softnicd exec --sysfs` writes a tree with the same names and puts its root into $SOFTNICD_SYSFS;
 * paths below /sys/class/infiniband, its siblings such as infiniband_verbs, and /dev/infiniband are looked up there instead.
 * Every other path, and every path when the variable is not set, goes through untouched.
 *
 * The functions are those of the C library that take a path and only look. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

/* The functions of the 64-bit interface are defined under both of their names below. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct place {
	char path[PATH_MAX];
};

static bool begins(const char *path, const char *with) { return strncmp(path, with, strlen(with)) == 0; }

/* The path to use for a path: in the tree, or the very path. */
static const char *redirect(const char *path, struct place *p)
{
	const char *root, *rest;
	size_t n;

	if (!path || path[0] != '/')
		return path;
	if (begins(path, "/sys/class/infiniband"))
		rest = path + strlen("/sys");
	else if (begins(path, "/dev/infiniband"))
		rest = path;
	else
		return path;
	root = getenv("SOFTNICD_SYSFS");
	if (!root || !*root)
		return path;
	n = (size_t)snprintf(p->path, sizeof(p->path), "%s%s", root, rest);
	return n < sizeof(p->path) ? p->path : path;
}

/* REAL makes real the C library's function. It is looked up when it is first used; two threads find the same. */
#define REAL(type, name, parameters)                                                                                   \
	static type(*known) parameters;                                                                                \
	type(*real) parameters = __atomic_load_n(&known, __ATOMIC_ACQUIRE);                                            \
	if (!real) {                                                                                                   \
		real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                    \
		__atomic_store_n(&known, real, __ATOMIC_RELEASE);                                                      \
	}                                                                                                              \
	if (!real) {                                                                                                   \
		errno = ENOSYS;                                                                                        \
		return (type)(long)FAILED;                                                                             \
	}                                                                                                              \
	struct place place

#define FAILED -1

#define NEEDS_MODE(flags) ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE)

#define OPEN(name)                                                                                                     \
	EXPORT int name(const char *path, int flags, ...)                                                              \
	{                                                                                                              \
		REAL(int, name, (const char *, int, ...));                                                             \
		mode_t mode = 0;                                                                                       \
		if (NEEDS_MODE(flags)) {                                                                               \
			va_list rest;                                                                                  \
			va_start(rest, flags);                                                                         \
			mode = va_arg(rest, mode_t);                                                                   \
			va_end(rest);                                                                                  \
		}                                                                                                      \
		return real(redirect(path, &place), flags, mode);                                                      \
	}

#define OPENAT(name)                                                                                                   \
	EXPORT int name(int dir, const char *path, int flags, ...)                                                     \
	{                                                                                                              \
		REAL(int, name, (int, const char *, int, ...));                                                        \
		mode_t mode = 0;                                                                                       \
		if (NEEDS_MODE(flags)) {                                                                               \
			va_list rest;                                                                                  \
			va_start(rest, flags);                                                                         \
			mode = va_arg(rest, mode_t);                                                                   \
			va_end(rest);                                                                                  \
		}                                                                                                      \
		return real(dir, redirect(path, &place), flags, mode);                                                 \
	}

#define ONE(type, name)                                                                                                \
	EXPORT type name(const char *path)                                                                             \
	{                                                                                                              \
		REAL(type, name, (const char *));                                                                      \
		return real(redirect(path, &place));                                                                   \
	}

#define TWO(type, name, second)                                                                                        \
	EXPORT type name(const char *path, second b)                                                                   \
	{                                                                                                              \
		REAL(type, name, (const char *, second));                                                              \
		return real(redirect(path, &place), b);                                                                \
	}

#define AT(name, third)                                                                                                \
	EXPORT int name(int dir, const char *path, third c)                                                            \
	{                                                                                                              \
		REAL(int, name, (int, const char *, third));                                                           \
		return real(dir, redirect(path, &place), c);                                                           \
	}

#define AT_FLAGS(name, third)                                                                                          \
	EXPORT int name(int dir, const char *path, third c, int flags)                                                 \
	{                                                                                                              \
		REAL(int, name, (int, const char *, third, int));                                                      \
		return real(dir, redirect(path, &place), c, flags);                                                    \
	}

/* What programs call that were compiled with _FORTIFY_SOURCE. */
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
char *__realpath_chk(const char *, char *, size_t);

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
TWO(int, __open_2, int)
TWO(int, __open64_2, int)
AT(__openat_2, int)
AT(__openat64_2, int)
TWO(int, access, int)
TWO(int, euidaccess, int)
AT_FLAGS(faccessat, int)
TWO(int, stat, struct stat *)
TWO(int, lstat, struct stat *)
TWO(int, stat64, struct stat64 *)
TWO(int, lstat64, struct stat64 *)
AT_FLAGS(fstatat, struct stat *)
AT_FLAGS(fstatat64, struct stat64 *)

EXPORT int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *st)
{
	REAL(int, statx, (int, const char *, int, unsigned int, struct statx *));
	return real(dir, redirect(path, &place), flags, mask, st);
}

/* What stat was before glibc 2.33, for programs that were compiled then. */
#define XSTAT(name, type)                                                                                              \
	EXPORT int name(int version, const char *path, type *st);                                                      \
	EXPORT int name(int version, const char *path, type *st)                                                       \
	{                                                                                                              \
		REAL(int, name, (int, const char *, type *));                                                          \
		return real(version, redirect(path, &place), st);                                                      \
	}

XSTAT(__xstat, struct stat)
XSTAT(__lxstat, struct stat)
XSTAT(__xstat64, struct stat64)
XSTAT(__lxstat64, struct stat64)

EXPORT ssize_t readlink(const char *path, char *buffer, size_t size)
{
	REAL(ssize_t, readlink, (const char *, char *, size_t));
	return real(redirect(path, &place), buffer, size);
}

EXPORT ssize_t readlinkat(int dir, const char *path, char *buffer, size_t size)
{
	REAL(ssize_t, readlinkat, (int, const char *, char *, size_t));
	return real(dir, redirect(path, &place), buffer, size);
}

/* ls asks for these. */
#define XATTR(name)                                                                                                    \
	EXPORT ssize_t name(const char *path, const char *attribute, void *value, size_t size)                         \
	{                                                                                                              \
		REAL(ssize_t, name, (const char *, const char *, void *, size_t));                                     \
		return real(redirect(path, &place), attribute, value, size);                                           \
	}

XATTR(getxattr)
XATTR(lgetxattr)

EXPORT int scandir(const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
		   int (*compare)(const struct dirent **, const struct dirent **))
{
	REAL(int, scandir, (const char *, struct dirent ***, int (*)(const struct dirent *),
			    int (*)(const struct dirent **, const struct dirent **)));
	return real(redirect(path, &place), names, filter, compare);
}

/* Those that fail with NULL. */
#undef FAILED
#define FAILED 0

ONE(DIR *, opendir)
TWO(FILE *, fopen, const char *)
TWO(FILE *, fopen64, const char *)
TWO(char *, realpath, char *)
ONE(char *, canonicalize_file_name)

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size)
{
	REAL(char *, __realpath_chk, (const char *, char *, size_t));
	return real(redirect(path, &place), resolved, size);
}
