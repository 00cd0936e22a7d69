/* What is not offered: every operation answers EOPNOTSUPP, until the file that has it puts its own in this place. No
 * operation is ever NULL, since not every program looks. */
#include "softnic.h"

/* Those that return a pointer. */
static void *nothing(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

static struct ibv_mw *no_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	(void)pd, (void)type;
	return nothing();
}

static int no_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind)
{
	(void)qp, (void)mw, (void)mw_bind;
	return EOPNOTSUPP;
}

static int no_dealloc_mw(struct ibv_mw *mw)
{
	(void)mw;
	return EOPNOTSUPP;
}

static int no_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *recv_wr, struct ibv_recv_wr **bad_recv_wr)
{
	(void)srq;
	*bad_recv_wr = recv_wr;
	return EOPNOTSUPP;
}

static int no_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg_list,
		uint32_t num_sges)
{
	(void)pd, (void)advice, (void)flags, (void)sg_list, (void)num_sges;
	return EOPNOTSUPP;
}

static struct ibv_mr *no_alloc_null_mr(struct ibv_pd *pd)
{
	(void)pd;
	return nothing();
}

static int no_read_counters(struct ibv_counters *counters, uint64_t *counters_value, uint32_t ncounters, uint32_t flags)
{
	(void)counters, (void)counters_value, (void)ncounters, (void)flags;
	return EOPNOTSUPP;
}

static int no_attach_counters_point_flow(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
		struct ibv_flow *flow)
{
	(void)counters, (void)attr, (void)flow;
	return EOPNOTSUPP;
}

static struct ibv_counters *no_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *init_attr)
{
	(void)context, (void)init_attr;
	return nothing();
}

static int no_destroy_counters(struct ibv_counters *counters)
{
	(void)counters;
	return EOPNOTSUPP;
}

static struct ibv_mr *no_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset, size_t length, unsigned int access)
{
	(void)pd, (void)dm, (void)dm_offset, (void)length, (void)access;
	return nothing();
}

static struct ibv_dm *no_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	(void)context, (void)attr;
	return nothing();
}

static int no_free_dm(struct ibv_dm *dm)
{
	(void)dm;
	return EOPNOTSUPP;
}

static int no_modify_flow_action_esp(struct ibv_flow_action *action, struct ibv_flow_action_esp_attr *attr)
{
	(void)action, (void)attr;
	return EOPNOTSUPP;
}

static int no_destroy_flow_action(struct ibv_flow_action *action)
{
	(void)action;
	return EOPNOTSUPP;
}

static struct ibv_flow_action *no_create_flow_action_esp(struct ibv_context *context, struct ibv_flow_action_esp_attr *attr)
{
	(void)context, (void)attr;
	return nothing();
}

static int no_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	(void)qp, (void)attr;
	return EOPNOTSUPP;
}

static struct ibv_pd *no_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	(void)context, (void)attr;
	return nothing();
}

static int no_dealloc_td(struct ibv_td *td)
{
	(void)td;
	return EOPNOTSUPP;
}

static struct ibv_td *no_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *init_attr)
{
	(void)context, (void)init_attr;
	return nothing();
}

static int no_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	(void)cq, (void)attr;
	return EOPNOTSUPP;
}

static int no_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad_op)
{
	(void)srq;
	*bad_op = op;
	return EOPNOTSUPP;
}

static int no_destroy_rwq_ind_table(struct ibv_rwq_ind_table *rwq_ind_table)
{
	(void)rwq_ind_table;
	return EOPNOTSUPP;
}

static struct ibv_rwq_ind_table *no_create_rwq_ind_table(struct ibv_context *context,
		struct ibv_rwq_ind_table_init_attr *init_attr)
{
	(void)context, (void)init_attr;
	return nothing();
}

static int no_destroy_wq(struct ibv_wq *wq)
{
	(void)wq;
	return EOPNOTSUPP;
}

static int no_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *wq_attr)
{
	(void)wq, (void)wq_attr;
	return EOPNOTSUPP;
}

static struct ibv_wq *no_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *wq_init_attr)
{
	(void)context, (void)wq_init_attr;
	return nothing();
}

static int no_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	(void)context, (void)values;
	return EOPNOTSUPP;
}

static int no_destroy_flow(struct ibv_flow *flow)
{
	(void)flow;
	return EOPNOTSUPP;
}

static struct ibv_flow *no_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *flow_attr)
{
	(void)qp, (void)flow_attr;
	return nothing();
}

static struct ibv_qp *no_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	(void)context, (void)attr;
	return nothing();
}

static int no_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	(void)srq, (void)srq_num;
	return EOPNOTSUPP;
}

static struct ibv_srq *no_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *srq_init_attr_ex)
{
	(void)context, (void)srq_init_attr_ex;
	return nothing();
}

static struct ibv_xrcd *no_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *xrcd_init_attr)
{
	(void)context, (void)xrcd_init_attr;
	return nothing();
}

static int no_close_xrcd(struct ibv_xrcd *xrcd)
{
	(void)xrcd;
	return EOPNOTSUPP;
}

static void placeholder(void)
{
}

void sn_install_unsupported(struct sn_context *c)
{
	struct ibv_context_ops *o = &sn_public(c)->ops;
	struct verbs_context *v = &c->verbs;

	o->alloc_mw = no_alloc_mw;
	o->bind_mw = no_bind_mw;
	o->dealloc_mw = no_dealloc_mw;
	o->post_srq_recv = no_post_srq_recv;
	v->advise_mr = no_advise_mr;
	v->alloc_null_mr = no_alloc_null_mr;
	v->read_counters = no_read_counters;
	v->attach_counters_point_flow = no_attach_counters_point_flow;
	v->create_counters = no_create_counters;
	v->destroy_counters = no_destroy_counters;
	v->reg_dm_mr = no_reg_dm_mr;
	v->alloc_dm = no_alloc_dm;
	v->free_dm = no_free_dm;
	v->modify_flow_action_esp = no_modify_flow_action_esp;
	v->destroy_flow_action = no_destroy_flow_action;
	v->create_flow_action_esp = no_create_flow_action_esp;
	v->modify_qp_rate_limit = no_modify_qp_rate_limit;
	v->alloc_parent_domain = no_alloc_parent_domain;
	v->dealloc_td = no_dealloc_td;
	v->alloc_td = no_alloc_td;
	v->modify_cq = no_modify_cq;
	v->post_srq_ops = no_post_srq_ops;
	v->destroy_rwq_ind_table = no_destroy_rwq_ind_table;
	v->create_rwq_ind_table = no_create_rwq_ind_table;
	v->destroy_wq = no_destroy_wq;
	v->modify_wq = no_modify_wq;
	v->create_wq = no_create_wq;
	v->query_rt_values = no_query_rt_values;
	v->ibv_destroy_flow = no_destroy_flow;
	v->ibv_create_flow = no_create_flow;
	v->open_qp = no_open_qp;
	v->get_srq_num = no_get_srq_num;
	v->create_srq_ex = no_create_srq_ex;
	v->open_xrcd = no_open_xrcd;
	v->close_xrcd = no_close_xrcd;
	o->_compat_alloc_pd = nothing;
	o->_compat_dealloc_pd = nothing;
	o->_compat_reg_mr = nothing;
	o->_compat_rereg_mr = nothing;
	o->_compat_dereg_mr = nothing;
	o->_compat_create_cq = nothing;
	o->_compat_cq_event = nothing;
	o->_compat_resize_cq = nothing;
	o->_compat_destroy_cq = nothing;
	o->_compat_create_srq = nothing;
	o->_compat_modify_srq = nothing;
	o->_compat_query_srq = nothing;
	o->_compat_destroy_srq = nothing;
	o->_compat_create_qp = nothing;
	o->_compat_query_qp = nothing;
	o->_compat_modify_qp = nothing;
	o->_compat_destroy_qp = nothing;
	o->_compat_create_ah = nothing;
	o->_compat_destroy_ah = nothing;
	o->_compat_attach_mcast = nothing;
	o->_compat_detach_mcast = nothing;
	o->_compat_async_event = nothing;
	v->ABI_placeholder1 = placeholder;
	v->ABI_placeholder2 = placeholder;
}
