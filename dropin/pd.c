/* Protection domains. Parent domains are in domain.c. */
#include "softnic.h"

#include <stdlib.h>

SN_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct softnic_ctl_handle_reply r;
	struct sn_pd *p = calloc(1, sizeof *p);
	int err = p ? sn_call(sn_context_of(context), SOFTNIC_CTL_OP_ALLOC_PD, NULL, 0, &r, sizeof r) : ENOMEM;

	if (err) {
		free(p);
		errno = err;
		return NULL;
	}
	p->pd.context = context;
	p->pd.handle = r.handle;
	return &p->pd;
}

SN_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct sn_pd *p = sn_pd_of(pd);
	int err;

	if (p->parent_of) {
		sn_parent_end(p);
	} else {
		if (atomic_load(&p->children))
			return EBUSY;
		err = sn_destroy(sn_context_of(pd->context), SOFTNIC_CTL_OP_DEALLOC_PD, pd->handle);
		if (err)
			return err;
	}
	free(p);
	return 0;
}
