/* Free spans of a memory out of which pieces are given: in order of their offset, two never touch. */
#include "memory.h"

#include <stdlib.h>

struct sn_span {
	uint64_t offset, size;
	struct sn_span *next;
};

bool sn_spans_take(struct sn_span **spans, uint64_t size, uint64_t *offset)
{
	for (struct sn_span **p = spans; *p; p = &(*p)->next) {
		struct sn_span *v = *p;

		if (v->size < size)
			continue;
		*offset = v->offset;
		v->offset += size;
		v->size -= size;
		if (v->size == 0) {
			*p = v->next;
			free(v);
		}
		return true;
	}
	return false;
}

bool sn_spans_give(struct sn_span **spans, uint64_t offset, uint64_t size)
{
	struct sn_span **p = spans, *before = NULL, *v;

	for (; *p && (*p)->offset < offset; p = &(*p)->next)
		before = *p;
	if (before && before->offset + before->size == offset) {
		before->size += size;
		v = before;
	} else {
		v = malloc(sizeof *v);
		if (!v)
			return false;
		*v = (struct sn_span){ offset, size, *p };
		*p = v;
	}
	if (v->next && v->offset + v->size == v->next->offset) {
		struct sn_span *after = v->next;

		v->size += after->size;
		v->next = after->next;
		free(after);
	}
	return true;
}

uint64_t sn_spans_first(const struct sn_span *spans) { return spans ? spans->size : 0; }

void sn_spans_free(struct sn_span *spans)
{
	for (struct sn_span *next; spans; spans = next) {
		next = spans->next;
		free(spans);
	}
}
