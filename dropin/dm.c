/* Device memory: memory that belongs to the device. This device has none of its own, but it has mapped the memory of its
 * rings, and reaches that at the cost of a copy. So a piece of it is what ibv_alloc_dm gives.
 *
 * As on adapters, it is read and written by ibv_memcpy_from_dm and ibv_memcpy_to_dm, 4 bytes at least at a time, and
 * registered under addresses from 0 on. */
#include <stdlib.h>

#include "softnic.h"

/* Word is what copies are made of; LOG_ALIGN the alignment that pieces of arenas have. */
enum { WORD = 4, LOG_ALIGN = 6 };

struct sn_dm {
	struct ibv_dm dm; /* first */
	struct sn_block block;
	size_t length;
	atomic_int regions;
};

static struct sn_dm *dm_of(struct ibv_dm *dm) { return (struct sn_dm *)dm; }

static bool inside(struct ibv_dm *dm, uint64_t offset, size_t length)
{
	return length <= dm_of(dm)->length && offset <= dm_of(dm)->length - length;
}

static bool copyable(struct ibv_dm *dm, uint64_t offset, size_t length)
{
	return offset % WORD == 0 && length % WORD == 0 && inside(dm, offset, length);
}

static int memcpy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	if (!copyable(dm, offset, length))
		return EFAULT;
	memcpy(dm_of(dm)->block.mem + offset, from, length);
	return 0;
}

static int memcpy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	if (!copyable(dm, offset, length))
		return EFAULT;
	memcpy(to, dm_of(dm)->block.mem + offset, length);
	return 0;
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct sn_dm *d;
	int error;

	if (attr->comp_mask || attr->length == 0 || attr->log_align_req > LOG_ALIGN) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->length > SN_MAX_DM) {
		errno = ENOMEM;
		return NULL;
	}
	d = calloc(1, sizeof(*d));
	error = d ? sn_block_alloc(sn_context_of(context), attr->length, &d->block) : ENOMEM;
	if (error) {
		free(d);
		errno = error;
		return NULL;
	}
	/* What rings were here is of no interest to whom the memory is sent. */
	memset(d->block.mem, 0, attr->length);
	d->length = attr->length;
	d->dm = (struct ibv_dm){ .context = context, .memcpy_to_dm = memcpy_to_dm, .memcpy_from_dm = memcpy_from_dm };
	return &d->dm;
}

static int free_dm(struct ibv_dm *dm)
{
	if (atomic_load(&dm_of(dm)->regions))
		return EBUSY;
	sn_block_free(sn_context_of(dm->context), &dm_of(dm)->block);
	free(dm_of(dm));
	return 0;
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	struct sn_dm *d = dm_of(dm);
	struct softnic_ctl_reg_mr q = {
		.pd = pd->handle, .kind = SOFTNIC_CTL_MEMORY_SHARED, .arena = d->block.arena, .offset = d->block.offset + offset,
		.access = access, .length = length,
	};
	struct softnic_ctl_reg_mr_reply r;
	struct sn_mr *m;
	int error;

	if (!(access & IBV_ACCESS_ZERO_BASED) || !inside(dm, offset, length) || pd->context != dm->context) {
		errno = EINVAL;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	error = m ? sn_call(sn_context_of(pd->context), SOFTNIC_CTL_OP_REG_MR, &q, sizeof(q), &r, sizeof(r)) : ENOMEM;
	if (error) {
		free(m);
		errno = error;
		return NULL;
	}
	m->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .length = length, .handle = r.handle, .lkey = r.lkey, .rkey = r.rkey };
	m->access = access;
	m->users = &d->regions;
	atomic_fetch_add(m->users, 1);
	return &m->mr;
}

void sn_install_dm(struct sn_context *c)
{
	c->verbs.alloc_dm = alloc_dm;
	c->verbs.free_dm = free_dm;
	c->verbs.reg_dm_mr = reg_dm_mr;
}
