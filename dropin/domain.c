/* Thread domains and parent domains.
 *
 * A thread domain is a promise that what is made with it is used by one thread at a time. Nothing here is faster for it,
 * and nothing goes wrong when it is broken. A parent domain is a protection domain for what is made with it, with the keys
 * of the one that it is of. It may bring allocators for the memory of queues; they are not called, since queues are in
 * memory that the daemon has mapped too, and a provider need not call them (ibv_alloc_parent_domain(3)). */
#include <stdlib.h>

#include "softnic.h"

struct sn_td {
	struct ibv_td td; /* first */
	atomic_int parents;
};

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct sn_td *t;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->td.context = context;
	return &t->td;
}

static int dealloc_td(struct ibv_td *td)
{
	struct sn_td *t = (struct sn_td *)td;

	if (atomic_load(&t->parents))
		return EBUSY;
	free(t);
	return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct sn_pd *p;

	if (!attr->pd || attr->pd->context != context || (attr->td && attr->td->context != context) || sn_pd_of(attr->pd)->parent_of ||
	    (attr->comp_mask & ~known)) {
		errno = EINVAL;
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pd = *attr->pd;
	p->parent_of = sn_pd_of(attr->pd);
	p->td = (struct sn_td *)attr->td;
	atomic_fetch_add(&p->parent_of->children, 1);
	if (p->td)
		atomic_fetch_add(&p->td->parents, 1);
	return &p->pd;
}

void sn_parent_end(struct sn_pd *p)
{
	atomic_fetch_sub(&p->parent_of->children, 1);
	if (p->td)
		atomic_fetch_sub(&p->td->parents, 1);
}

void sn_install_domain(struct sn_context *c)
{
	c->verbs.alloc_td = alloc_td;
	c->verbs.dealloc_td = dealloc_td;
	c->verbs.alloc_parent_domain = alloc_parent_domain;
}
