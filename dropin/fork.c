/* Forks. A child has the parent's descriptors and rings, but they are the parent's: in the child every device that was
 * open is dead. It may open devices of its own.
 *
 * The device reaches memory through the process it was registered by, and pins none: what parent and child write to pages
 * that they share is each one's own, as always. So there is nothing to prepare with ibv_fork_init. */
#include "softnic.h"

#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sn_context *contexts;

static void before_fork(void) { pthread_mutex_lock(&mutex); }

static void in_parent(void) { pthread_mutex_unlock(&mutex); }

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
