/* Reading a file of sysfs, as programs do by this library. */
#include "softnic.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

SN_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[512];
	ssize_t n;
	int fd, len = snprintf(path, sizeof path, "%s/%s", dir, file);

	if (len < 0 || (size_t)len >= sizeof path || size == 0)
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	do
		n = read(fd, buf, size);
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n <= 0)
		return -1;
	/* The newline at the end is not part of the value. */
	if (buf[n - 1] == '\n')
		buf[--n] = 0;
	else if ((size_t)n < size)
		buf[n] = 0;
	else
		return -1;
	return (int)n;
}
