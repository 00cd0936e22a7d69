/* Forks. A child has the parent's descriptors and rings, but they are the parent's: in the child every device that was
 * open is dead. It may open devices of its own.
 *
 * Registered memory is like all other: what it had at the fork the child has too, and from then on what parent and child
 * write is each one's own, whether or not the program has called ibv_fork_init. Pages that the device has mapped are copied
 * for the child (ranges.c), the others the system copies when they are written. */
#include "memory.h"

#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sn_context *contexts;

static void before_fork(void)
{
	pthread_mutex_lock(&mutex);
	sn_ranges_before_fork();
}

static void in_parent(void)
{
	sn_ranges_in_parent();
	pthread_mutex_unlock(&mutex);
}

static void in_child(void)
{
	for (struct sn_context *c = contexts; c; c = c->next) {
		atomic_store(&c->state, SN_FORKED);
		/* While the child holds the socket the daemon would not learn of the parent's end. */
		if (c->conn.fd >= 0)
			close(c->conn.fd);
		c->conn.fd = -1;
		/* Another thread of the parent may have held these. */
		pthread_mutex_init(&c->conn.mutex, NULL);
		pthread_mutex_init(&c->describing, NULL);
		pthread_mutex_init(&c->objects.mutex, NULL);
	}
	contexts = NULL;
	sn_ranges_in_child();
	pthread_mutex_unlock(&mutex);
}

static void watch_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }

void sn_fork_add(struct sn_context *c)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&mutex);
	c->next = contexts;
	contexts = c;
	pthread_mutex_unlock(&mutex);
}

void sn_fork_remove(struct sn_context *c)
{
	pthread_mutex_lock(&mutex);
	for (struct sn_context **p = &contexts; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	pthread_mutex_unlock(&mutex);
}

SN_EXPORT int ibv_fork_init(void) { return 0; }

SN_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }

SN_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

SN_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}
