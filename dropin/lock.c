/* Waiting for a lock of the data path. */
#include "softnic.h"

#include <sched.h>

/* Who holds the lock runs, and is done in a moment, or was taken off the processor: then spinning only keeps it off. */
#define SPINS 100

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

void sn_lock_wait(struct sn_lock *l)
{
	for (unsigned tries = 0;; tries++) {
		if (!atomic_load_explicit(&l->held, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&l->held, 1, memory_order_acquire))
			return;
		if (tries < SPINS)
			pause_briefly();
		else
			sched_yield();
	}
}
