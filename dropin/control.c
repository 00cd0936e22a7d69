/* The control socket: fixed-layout messages, one request under way at a time, descriptors by SCM_RIGHTS. */
#include "softnic.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct message {
	struct softnic_ctl_header header;
	uint8_t body[SOFTNIC_CTL_MAX_MESSAGE - SOFTNIC_CTL_HEADER_SIZE];
};

_Static_assert(sizeof(struct message) == SOFTNIC_CTL_MAX_MESSAGE, "a message is a header and a body");

/* $SOFTNICD_SOCKET, else softnicd.sock in $XDG_RUNTIME_DIR if there is one, else that of the system's daemon. */
static int socket_path(char *path, size_t size)
{
	const char *name = getenv("SOFTNICD_SOCKET"), *dir = getenv("XDG_RUNTIME_DIR");
	int n;

	if (name && *name) {
		n = snprintf(path, size, "%s", name);
	} else {
		n = dir && *dir ? snprintf(path, size, "%s/softnicd.sock", dir) : -1;
		if (n < 0 || (size_t)n >= size || access(path, F_OK) != 0)
			n = snprintf(path, size, "/run/softnicd/softnicd.sock");
	}
	return n < 0 || (size_t)n >= size ? ENAMETOOLONG : 0;
}

int sn_conn_open(struct sn_conn *conn)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int err = socket_path(a.sun_path, sizeof a.sun_path);

	memset(conn, 0, sizeof *conn);
	conn->fd = -1;
	if (err) {
		sn_say(SN_SAY_DAEMON, "the name of the control socket in $SOFTNICD_SOCKET is longer than a socket's may be (%zu bytes)",
		       sizeof a.sun_path - 1);
		return err;
	}
	conn->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (conn->fd < 0) {
		err = errno;
		sn_say(SN_SAY_DAEMON, "no socket to the daemon can be had: %s", strerror(err));
		return err;
	}
	do
		err = connect(conn->fd, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : errno;
	while (err == EINTR);
	if (err) {
		close(conn->fd);
		conn->fd = -1;
		if (err == ENOENT || err == ECONNREFUSED)
			sn_say(SN_SAY_DAEMON, "no daemon at %s: start one with \"softnicd run\", or name its socket in $SOFTNICD_SOCKET", a.sun_path);
		else if (err == EACCES)
			sn_say(SN_SAY_DAEMON, "this user may not connect to %s; its group may (add the user to it)", a.sun_path);
		else
			sn_say(SN_SAY_DAEMON, "control socket %s: %s", a.sun_path, strerror(err));
		return err;
	}
	pthread_mutex_init(&conn->mutex, NULL);
	return 0;
}

void sn_conn_close(struct sn_conn *conn)
{
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
}

static int send_message(int fd, struct message *m, size_t body, const struct sn_fds *fds)
{
	struct iovec v = { m, SOFTNIC_CTL_HEADER_SIZE + body };
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * SOFTNIC_CTL_MAX_DESCRIPTORS)];
	} control;
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };
	ssize_t n;

	if (fds && fds->n > 0) {
		size_t bytes = sizeof(int) * (size_t)fds->n;
		struct cmsghdr *c;

		memset(&control, 0, sizeof control);
		h.msg_control = &control;
		h.msg_controllen = CMSG_SPACE(bytes);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(c), fds->fd, bytes);
	}
	do
		n = sendmsg(fd, &h, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? errno : 0;
}

static void close_all(struct sn_fds *fds)
{
	for (int i = 0; i < fds->n; i++)
		close(fds->fd[i]);
	fds->n = 0;
}

/* Receives one message; *size is 0 at the end of the session. */
static int receive_message(int fd, struct message *m, size_t *size, struct sn_fds *fds)
{
	struct iovec v = { m, sizeof *m };
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * SOFTNIC_CTL_MAX_DESCRIPTORS)];
	} control;
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n;

	fds->n = 0;
	do
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int one;

			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			if (fds->n < SOFTNIC_CTL_MAX_DESCRIPTORS)
				fds->fd[fds->n++] = one;
			else
				close(one);
		}
	}
	*size = (size_t)n;
	return 0;
}

/* Judges a reply: 0, the refusal's errno, EPROTO for what is none, ANOTHER for one of another request. */
enum { ANOTHER = -1 };

static int judge(const struct message *m, size_t size, uint32_t tag, size_t reply_size, char *sentence)
{
	size_t body = size - SOFTNIC_CTL_HEADER_SIZE;

	if (size < SOFTNIC_CTL_HEADER_SIZE || m->header.size != size || m->header.version != SOFTNIC_CTL_VERSION)
		return EPROTO;
	if (m->header.error && (m->header.tag == tag || m->header.tag == 0)) {
		/* Tag 0: turned away before any request. */
		if (sentence) {
			if (body > SOFTNIC_CTL_MAX_SENTENCE)
				body = SOFTNIC_CTL_MAX_SENTENCE;
			memcpy(sentence, m->body, body);
			sentence[body] = 0;
		}
		return m->header.error < 4096 ? (int)m->header.error : EPROTO;
	}
	if (m->header.tag != tag)
		return ANOTHER;
	return body == reply_size ? 0 : EPROTO;
}

static int exchange(struct sn_conn *conn, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size,
		    const struct sn_fds *send, struct sn_fds *receive, char *sentence)
{
	struct message m;
	size_t size;
	int err;

	if (conn->fd < 0 || conn->ended)
		return EIO;
	if (request_size > sizeof m.body || reply_size > sizeof m.body)
		return EINVAL;
	m.header = (struct softnic_ctl_header){ (uint32_t)(SOFTNIC_CTL_HEADER_SIZE + request_size), SOFTNIC_CTL_VERSION, op, ++conn->tag, 0 };
	if (conn->tag == 0)
		m.header.tag = conn->tag = 1;
	if (request_size)
		memcpy(m.body, request, request_size);
	err = send_message(conn->fd, &m, request_size, send);
	if (err == EPIPE || err == ECONNRESET) {
		/* The daemon may have said why before it closed. */
		err = receive_message(conn->fd, &m, &size, receive);
		close_all(receive);
		conn->ended = true;
		if (!err && size >= SOFTNIC_CTL_HEADER_SIZE && m.header.error)
			return judge(&m, size, 0, 0, sentence);
		return EIO;
	}
	if (err)
		return err;
	do {
		err = receive_message(conn->fd, &m, &size, receive);
		if (err || size == 0) {
			conn->ended = true;
			return err && err != ECONNRESET ? err : EIO;
		}
		err = judge(&m, size, conn->tag, reply_size, sentence);
		if (err)
			close_all(receive);
	} while (err == ANOTHER);
	if (!err && reply_size)
		memcpy(reply, m.body, reply_size);
	return err;
}

int sn_conn_call(struct sn_conn *conn, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size,
		 const struct sn_fds *send, struct sn_fds *receive, char *sentence)
{
	struct sn_fds none;
	int err;

	if (sentence)
		*sentence = 0;
	pthread_mutex_lock(&conn->mutex);
	err = exchange(conn, op, request, request_size, reply, reply_size, send, receive ? receive : &none, sentence);
	pthread_mutex_unlock(&conn->mutex);
	if (!receive && !err)
		close_all(&none);
	return err;
}

int sn_call_fds(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply,
		size_t reply_size, const struct sn_fds *send, struct sn_fds *receive)
{
	char sentence[SOFTNIC_CTL_MAX_SENTENCE + 1];
	int err;

	if (sn_forked(c)) {
		sn_say(SN_SAY_FORK, "a device that the parent process has opened cannot be used in its child: open it again there");
		return EIO;
	}
	err = sn_conn_call(&c->conn, op, request, request_size, reply, reply_size, send, receive, sentence);
	if (c->conn.ended) {
		int live = SN_LIVE;

		atomic_compare_exchange_strong(&c->state, &live, SN_GONE);
		sn_say(SN_SAY_DEATH, "the daemon is gone: device %s has failed", c->device->ibv.name);
	} else if (err && err != ENODATA && err != EOPNOTSUPP && err != EBUSY) { /* busy: many programs end in a wrong order */
		sn_say((enum sn_topic)(SN_SAY_REFUSED + op), "%s", *sentence ? sentence : strerror(err));
	}
	return err;
}

int sn_call(struct sn_context *c, uint16_t op, const void *request, size_t request_size, void *reply, size_t reply_size)
{
	return sn_call_fds(c, op, request, request_size, reply, reply_size, NULL, NULL);
}

int sn_call_handle(struct sn_context *c, uint16_t op, uint32_t handle)
{
	struct softnic_ctl_handle h = { .handle = handle };

	return sn_call(c, op, &h, sizeof h, NULL, 0);
}

int sn_destroy(struct sn_context *c, uint16_t op, uint32_t handle)
{
	int err = atomic_load(&c->state) == SN_LIVE ? sn_call_handle(c, op, handle) : EIO;

	return atomic_load(&c->state) == SN_LIVE ? err : 0;
}

int sn_make_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ? errno : 0;
}
