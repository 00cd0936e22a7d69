/* The objects that events name. */
#include "softnic.h"

#include <stdlib.h>

struct sn_object {
	void *object; /* NULL: the slot is free */
	enum sn_kind kind;
	uint32_t generation;
	uint32_t next; /* free slots: index + 1 of the next */
};

static bool extend(struct sn_objects *t)
{
	uint32_t n = t->n ? 2 * t->n : 64;
	struct sn_object *slots = realloc(t->slots, n * sizeof *slots);

	if (!slots)
		return false;
	memset(slots + t->n, 0, (n - t->n) * sizeof *slots);
	for (uint32_t i = n; i > t->n; i--) {
		slots[i - 1].next = t->free;
		t->free = i;
	}
	t->slots = slots;
	t->n = n;
	return true;
}

uint64_t sn_object_add(struct sn_context *c, enum sn_kind kind, void *object)
{
	struct sn_objects *t = &c->objects;
	uint64_t cookie = 0;

	pthread_mutex_lock(&t->mutex);
	if (t->free || extend(t)) {
		uint32_t index = t->free - 1;
		struct sn_object *o = &t->slots[index];

		t->free = o->next;
		o->object = object;
		o->kind = kind;
		cookie = (uint64_t)++o->generation << 32 | index;
	}
	pthread_mutex_unlock(&t->mutex);
	return cookie;
}

void sn_object_remove(struct sn_context *c, uint64_t cookie)
{
	struct sn_objects *t = &c->objects;
	uint32_t index = (uint32_t)cookie;

	pthread_mutex_lock(&t->mutex);
	if (index < t->n && t->slots[index].object && t->slots[index].generation == cookie >> 32) {
		t->slots[index].object = NULL;
		t->slots[index].next = t->free;
		t->free = index + 1;
	}
	pthread_mutex_unlock(&t->mutex);
}

void *sn_object_event(struct sn_context *c, enum sn_kind kind, uint64_t cookie, void (*deliver)(void *object))
{
	struct sn_objects *t = &c->objects;
	uint32_t index = (uint32_t)cookie;
	void *object = NULL;

	pthread_mutex_lock(&t->mutex);
	if (index < t->n && t->slots[index].kind == kind && t->slots[index].generation == cookie >> 32)
		object = t->slots[index].object;
	if (object)
		deliver(object);
	pthread_mutex_unlock(&t->mutex);
	return object;
}
