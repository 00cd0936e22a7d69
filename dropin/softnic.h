/* softnicd's libibverbs.so.1: what its files share.
 *
 * An object of the application is a public structure with ours around it: struct sn_qp begins with struct ibv_qp_ex, and
 * so on, and the sn_*_of() functions go from one to the other. Objects of the device have handles, which the control
 * calls name (sn_call). Queues are rings in memory that the daemon has mapped too; ring.h writes and reads them.
 *
 * A file that adds verbs has a function sn_install_NAME(), called for every context that is opened, which puts its
 * functions over those of unsupported.c, and defines the exported symbols of its verbs with SN_EXPORT.
 *
 * Functions that return int return 0 or an errno, unless the verb says otherwise.
 */
#ifndef SOFTNIC_H
#define SOFTNIC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "ibv.h"
#include "softnicd_abi.h"

#define SN_EXPORT __attribute__((visibility("default")))
#define SN_LIKELY(x) __builtin_expect(!!(x), 1)
#define SN_UNLIKELY(x) __builtin_expect(!!(x), 0)

struct sn_context;
struct sn_qp;
struct sn_cq;

/* --- locks (lock.c) ------------------------------------------------------------------------------------------------ */

/* A lock of the data path: nobody holds it for longer than a handful of requests take to write. */
struct sn_lock {
	atomic_uint held;
};

void sn_lock_wait(struct sn_lock *l);

static inline void sn_lock(struct sn_lock *l)
{
	if (SN_UNLIKELY(atomic_exchange_explicit(&l->held, 1, memory_order_acquire)))
		sn_lock_wait(l);
}

static inline void sn_unlock(struct sn_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

/* --- sentences (say.c) --------------------------------------------------------------------------------------------- */

/* What went wrong, for the person in front of the terminal: one line on standard error, the first time that this kind of
 * thing goes wrong in this process. $SOFTNICD_QUIET silences it. */
enum sn_topic {
	SN_SAY_DAEMON,  /* no daemon, or it may not be reached, or the device cannot be opened */
	SN_SAY_DEATH,   /* the daemon is gone */
	SN_SAY_FORK,    /* a context of the parent was used in the child */
	SN_SAY_PROC,    /* this process cannot open its own memory for the daemon */
	SN_SAY_SWAP,    /* registered memory cannot be moved as the user has asked for */
	SN_SAY_REFUSED, /* and the operation that was refused: each has its first time */
};

#define SN_OPERATIONS 64 /* of the control protocol, by number */

void sn_say(enum sn_topic topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- the control socket (control.c) --------------------------------------------------------------------------------- */

/* A session with the daemon. One request is under way at a time. */
struct sn_conn {
	pthread_mutex_t mutex;
	int fd; /* -1: closed, or the parent's */
	uint32_t tag;
	atomic_bool ended; /* the daemon is gone */
};

/* Descriptors beside a message. Those that were sent stay the caller's, those that were received become the caller's. */
struct sn_fds {
	int n;
	int fd[SOFTNIC_CTL_MAX_DESCRIPTORS];
};

/* Descriptors of events come as the daemon made them. Programs that wait for them by get_cq_event expect to be kept
 * waiting, unless they set O_NONBLOCK themselves. */
int sn_make_blocking(int fd);

int sn_conn_open(struct sn_conn *conn);
void sn_conn_close(struct sn_conn *conn);

/* Sends a request and waits for its reply, which has exactly reply_size bytes: 0, or the errno with which the daemon has
 * refused; EIO when it is gone. sentence, of SOFTNIC_CTL_MAX_SENTENCE + 1 bytes, gets why, if it is not NULL. */
int sn_conn_call(struct sn_conn *conn, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size,
		 const struct sn_fds *send, struct sn_fds *receive, char *sentence);

/* The same for an open device. A refusal is said on standard error, once, except ENODATA and EOPNOTSUPP. The size of a
 * request or reply that has no body is 0. */
int sn_call(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size);
int sn_call_fds(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply,
		size_t reply_size, const struct sn_fds *send, struct sn_fds *receive);

/* A call by op about the object of a handle, with nothing in the reply. */
int sn_call_handle(struct sn_context *c, uint16_t op, uint32_t handle);

/* The same to destroy the object. When the daemon is gone, or the context is the parent's, there is nothing left to
 * destroy there: 0, so that the application can clean up. */
int sn_destroy(struct sn_context *c, uint16_t op, uint32_t handle);

/* --- memory for rings (arena.c) ------------------------------------------------------------------------------------- */

struct sn_arena;

/* A piece of memory that the daemon has mapped too: arena and offset are its name there. It begins on a cache line, and
 * may hold anything. */
struct sn_block {
	struct sn_arena *in;
	uint8_t *mem;
	uint64_t size;
	uint32_t arena;
	uint64_t offset;
};

struct sn_arenas {
	pthread_mutex_t mutex;
	struct sn_arena *first;
	uint64_t total;
};

int sn_block_alloc(struct sn_context *c, uint64_t size, struct sn_block *b);
/* Only after the daemon has confirmed that the object in it is no more. Frees no block twice: a block of no memory is
 * nothing. */
void sn_block_free(struct sn_context *c, struct sn_block *b);
void sn_arenas_unmap(struct sn_context *c); /* the context is being closed */

/* Makes a memory of zeroes that the daemon can map, and maps it. */
int sn_memory_create(const char *name, uint64_t size, int *fd, uint8_t **mem);

/* --- objects that events name (object.c) ---------------------------------------------------------------------------- */

enum sn_kind { SN_CQ = 1, SN_QP, SN_SRQ };

/* Events name objects by a cookie, which is never given twice: the event of an object that was destroyed while it was
 * under way finds nothing. */
struct sn_objects {
	pthread_mutex_t mutex;
	struct sn_object *slots;
	uint32_t n, free; /* free: index + 1 of the first free slot */
};

uint64_t sn_object_add(struct sn_context *c, enum sn_kind kind, void *object); /* 0 when there is no memory */
void sn_object_remove(struct sn_context *c, uint64_t cookie);
/* Finds the object of an event, and calls deliver before anybody can remove it: NULL if there is none any more. */
void *sn_object_event(struct sn_context *c, enum sn_kind kind, uint64_t cookie, void (*deliver)(void *object));

/* --- the device and the context (device.c, context.c) --------------------------------------------------------------- */

struct sn_device {
	struct ibv_device ibv;
	uint64_t guid; /* host order */
	int index;
	atomic_int references; /* lists and contexts */
};

/* Whether a context works. */
enum { SN_LIVE, SN_GONE /* the daemon is */, SN_FORKED /* it is the parent's */ };

/* Queue pairs by doorbell slot, for those who poll. The number stands beside the pointer, so that only a queue pair that
 * is there is touched: whoever removes one holds the locks of its completion queues. Who polls looks at the number before
 * and after he has read the pointer, since the slot may be given to another meanwhile. */
struct sn_slot {
	_Atomic(struct sn_qp *) qp;
	atomic_uint qpn;
};

#define SN_LEAF_SLOTS 64

struct sn_context {
	struct verbs_context verbs;
	struct sn_device *device;
	struct sn_conn conn;
	atomic_int state;
	bool reclaim_poll;     /* slots come back when completions are polled, not when requests complete */
	pthread_mutex_t describing;
	bool described;        /* the daemon knows how to reach this process's memory */
	uint8_t *page;         /* the device page, read-only */
	uint8_t *bell;
	int bell_fd;
	atomic_bool fatal_told; /* IBV_EVENT_DEVICE_FATAL of the daemon's death was delivered */
	struct sn_arenas arenas;
	struct sn_objects objects;
	struct softnic_ctl_query_device_reply attr; /* as at opening: limits do not change */
	_Atomic(struct sn_slot *) leaves[SOFTNIC_MAX_QP_SLOTS / SN_LEAF_SLOTS];
	struct sn_context *next; /* of all that are open, for fork.c */
};

static inline struct sn_context *sn_context_of(struct ibv_context *c)
{
	return (struct sn_context *)((uint8_t *)c - offsetof(struct sn_context, verbs.context));
}

static inline struct ibv_context *sn_public(struct sn_context *c) { return &c->verbs.context; }

/* A clock of the host as it is now, in nanoseconds. */
static inline uint64_t sn_clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether the context is the parent's. Then its locks may be held by threads that are not here. */
static inline bool sn_forked(struct sn_context *c)
{
	return SN_UNLIKELY(atomic_load_explicit(&c->state, memory_order_relaxed) == SN_FORKED);
}

/* Whether the daemon is gone: the kernel marks the word while it dies. */
static inline bool sn_lost(struct sn_context *c)
{
	const atomic_uint *death = (const atomic_uint *)(c->page + SOFTNIC_OFF_PAGE_DEATH);

	return atomic_load_explicit(&c->state, memory_order_relaxed) != SN_LIVE ||
	       atomic_load_explicit(death, memory_order_acquire) & SOFTNIC_DEATH_BIT;
}

/* The list of contexts, for the child of a fork (fork.c). */
void sn_fork_add(struct sn_context *c);
void sn_fork_remove(struct sn_context *c);

struct sn_device *sn_device_ref(struct sn_device *d);
void sn_device_unref(struct sn_device *d);

/* Every file that has operations. Those of unsupported.c, which answer EOPNOTSUPP, are installed first. */
void sn_install_unsupported(struct sn_context *c);
void sn_install_query(struct sn_context *c);
void sn_install_cq(struct sn_context *c);
void sn_install_qp(struct sn_context *c);
void sn_install_post(struct sn_context *c);
void sn_install_poll(struct sn_context *c);
void sn_install_srq(struct sn_context *c);      /* srq.c: post_srq_recv, create_srq_ex, get_srq_num */
void sn_install_xrc(struct sn_context *c);      /* xrc.c: open_xrcd, close_xrcd, open_qp */
void sn_install_mw(struct sn_context *c);       /* mw.c: alloc_mw, dealloc_mw, bind_mw */
void sn_install_domain(struct sn_context *c);   /* domain.c: td, parent domain */
void sn_install_dm(struct sn_context *c);       /* dm.c: device memory */
void sn_install_resize(struct sn_context *c);   /* resize.c: modify_cq */
void sn_install_extended(struct sn_context *c); /* extended.c: query_rt_values, and those before */

/* --- domains, regions, address handles ------------------------------------------------------------------------------ */

struct sn_td;

struct sn_pd {
	struct ibv_pd pd;        /* pd.handle is the device's; a parent domain has that of the domain it is of */
	struct sn_pd *parent_of; /* of a parent domain: what it is of; otherwise NULL */
	atomic_int children;     /* parent domains of it */
	struct sn_td *td;        /* of a parent domain: its thread domain, or NULL */
};

struct sn_mr {
	struct ibv_mr mr;
	uint32_t access;
	atomic_int *users; /* of device memory: counts its regions (dm.c) */
};

struct sn_ah {
	struct ibv_ah ah;
};

struct sn_channel {
	struct ibv_comp_channel channel;
	uint32_t handle;
};

struct sn_mw {
	struct ibv_mw mw;
	struct sn_lock lock;
};

struct sn_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t handle;
};

#define SN_MAX_DM ((size_t)256 << 10) /* bytes of one ibv_dm (dm.c) */

void sn_parent_end(struct sn_pd *p); /* lets go of what a parent domain was made of (domain.c) */

static inline struct sn_pd *sn_pd_of(struct ibv_pd *p) { return (struct sn_pd *)p; }
static inline struct sn_channel *sn_channel_of(struct ibv_comp_channel *c) { return (struct sn_channel *)c; }
static inline struct sn_mr *sn_mr_of(struct ibv_mr *m) { return (struct sn_mr *)m; }
static inline struct sn_mw *sn_mw_of(struct ibv_mw *m) { return (struct sn_mw *)m; }
static inline struct sn_xrcd *sn_xrcd_of(struct ibv_xrcd *x) { return (struct sn_xrcd *)x; }

/* --- queues --------------------------------------------------------------------------------------------------------- */

/* The application's side of a send or receive queue. */
struct sn_wq {
	struct sn_lock lock;
	uint32_t posted;  /* requests posted, modulo 2^32 */
	atomic_uint done; /* requests whose slots are free again */
	uint32_t depth;   /* what may be posted at once; a power of two, 0 for none */
	uint32_t stride;
	uint32_t max_sge;
	uint8_t *ring;

	/* After a reset the completions of before are not the application's any more: those in the completion queue at an
	 * index before stale. Guarded by the lock of the completion queue. */
	bool reset;
	uint64_t stale;
};

/* A ring of a completion queue. */
struct sn_cq_ring {
	struct sn_block block; /* of the first ring: the header too, and stays until the end */
	uint8_t *entries;
	uint32_t capacity;
	struct sn_cq_ring *next; /* the ring that the device may have moved on to; NULL unless the queue was resized */
};

int sn_cq_ring_new(struct sn_context *c, uint32_t entries, struct sn_cq_ring **ring);
void sn_cq_ring_free(struct sn_context *c, struct sn_cq_ring *r);

struct sn_cq {
	struct ibv_cq_ex ex; /* first; ex.cqe is the capacity */
	struct sn_lock lock;
	uint8_t *header;
	struct sn_cq_ring *ring; /* where the next entry is */
	struct sn_cq_ring *first; /* whose block has the header */
	uint32_t pos;            /* of the next entry in the ring */
	uint64_t index;          /* entries taken; the ring has the low 32 bits */
	uint64_t given;          /* of these, given back to the device */
	uint32_t sequence;       /* of the last arming */
	uint32_t kind;           /* SOFTNIC_ARM_ */
	atomic_uint empty;       /* polls in a row that found nothing */
	bool single;             /* IBV_CREATE_CQ_ATTR_SINGLE_THREADED */
	const uint8_t *current;  /* cqex.c: the entry between start_poll and end_poll */
	pthread_mutex_t resizing;
	uint64_t cookie;
	uint32_t comp_events;    /* delivered; guarded by objects.mutex */
	uint32_t async_events;
};

struct sn_qp {
	struct ibv_qp_ex ex; /* first */
	/* What later releases of libibverbs have at the end of ibv_qp_ex: nothing may come between. */
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type, uint8_t level);
	uint8_t *header;
	struct sn_block block;
	struct sn_wq sq, rq;
	uint32_t slot;
	uint32_t shard;
	uint32_t max_inline;
	bool sig_all;
	bool has_ex;  /* made with send_ops_flags: ibv_qp_to_qp_ex gives it */
	bool target;  /* of XRC: no rings, no slot */
	uint64_t cookie;
	uint32_t async_events;
	struct ibv_qp_cap cap;
	struct sn_builder *builder; /* wr.c's; freed with free() when the queue pair is destroyed */
};

struct sn_srq {
	struct ibv_srq srq; /* first */
	struct sn_wq rq;    /* rq.done is what the header's rq_taken was when somebody looked */
	uint8_t *header;
	struct sn_block block;
	pthread_mutex_t resizing;
	uint8_t *next_header; /* while it is resized: of the ring to which the device goes over; otherwise NULL */
	struct sn_wq next;    /* that ring */
	uint32_t next_places; /* what may be posted meanwhile */
	uint32_t number; /* in an XRC domain */
	uint64_t cookie;
	uint32_t async_events;
	bool xrc;
};

static inline struct sn_cq *sn_cq_of(struct ibv_cq *q) { return (struct sn_cq *)q; }
static inline struct sn_cq *sn_cq_of_ex(struct ibv_cq_ex *q) { return (struct sn_cq *)q; }
static inline struct ibv_cq *sn_public_cq(struct sn_cq *q) { return ibv_cq_ex_to_cq(&q->ex); }
static inline struct sn_qp *sn_qp_of(struct ibv_qp *q) { return (struct sn_qp *)q; }
static inline struct sn_qp *sn_qp_of_ex(struct ibv_qp_ex *q) { return (struct sn_qp *)q; }
static inline struct ibv_qp *sn_public_qp(struct sn_qp *q) { return &q->ex.qp_base; }
static inline struct sn_srq *sn_srq_of(struct ibv_srq *q) { return (struct sn_srq *)q; }

/* The SL of a completion; of a datagram's the kind of its network header in that place, which the public structure has no
 * field for: ConnectX's library has it there, and programs that run on ConnectX, such as UCX, find the addresses in the GRH
 * by it. What is lost is the priority of a VLAN tag. */
static inline uint8_t sn_cqe_sl(const struct softnic_cqe *e) { return e->network_type ? e->network_type : e->sl; }

/* Attributes between the public structure and the message (qpattr.c). */
void sn_qp_attr_to(struct softnic_ctl_qp_attr *m, const struct ibv_qp_attr *a, int mask);
void sn_qp_attr_from(struct ibv_qp_attr *a, const struct softnic_ctl_qp_attr *m);

/* Initialises mutex and cond of a public structure and the public fields that every queue pair has (qp.c); xrc.c uses it
 * for targets. */
void sn_qp_init(struct sn_qp *q, struct sn_context *c, struct ibv_pd *pd, enum ibv_qp_type type, void *qp_context);

/* Waits until all events that were got for an object are acknowledged (async.c). completed is the public counter. */
void sn_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, const uint32_t *delivered);

/* What other files add to the making of queues.
 *
 * cqex.c: sets the functions of q->ex for wc_flags; errno if a flag is not offered.
 * wr.c:   sets the functions of q->ex for send_ops_flags; errno if an operation is not offered for the type.
 * xrc.c:  makes an XRC target (IBV_QPT_XRC_RECV): NULL and errno.
 * mw.c:   fills the request to bind a window of an IBV_WR_BIND_MW. */
int sn_cq_extend(struct sn_cq *q, uint64_t wc_flags);
int sn_qp_extend(struct sn_qp *q, uint64_t send_ops_flags);
struct ibv_qp *sn_target_create(struct sn_context *c, struct ibv_qp_init_attr_ex *attr);
int sn_bind_fill(struct sn_qp *q, const struct ibv_send_wr *wr, struct softnic_send_wqe *w);

#endif
