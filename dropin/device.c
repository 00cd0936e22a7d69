/* The list of devices: what the daemon has. */
#include "softnic.h"

#include <stdio.h>
#include <stdlib.h>

struct sn_device *sn_device_ref(struct sn_device *d)
{
	atomic_fetch_add(&d->references, 1);
	return d;
}

void sn_device_unref(struct sn_device *d)
{
	if (atomic_fetch_sub(&d->references, 1) == 1)
		free(d);
}

static struct sn_device *device_new(const uint8_t name[SOFTNIC_CTL_NAME_SIZE], uint64_t guid, int index)
{
	struct sn_device *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	memcpy(d->ibv.name, name, sizeof d->ibv.name - 1);
	snprintf(d->ibv.dev_name, sizeof d->ibv.dev_name, "uverbs%d", index);
	snprintf(d->ibv.dev_path, sizeof d->ibv.dev_path, "/sys/class/infiniband_verbs/uverbs%d", index);
	snprintf(d->ibv.ibdev_path, sizeof d->ibv.ibdev_path, "/sys/class/infiniband/%s", d->ibv.name);
	d->guid = guid;
	d->index = index;
	atomic_store(&d->references, 1);
	return d;
}

/* Asks for one page of names after the n that list has. */
static int next_page(struct sn_conn *conn, struct ibv_device ***list, uint32_t *n, uint32_t *count)
{
	struct softnic_ctl_list_devices q = { .first = *n };
	struct softnic_ctl_list_devices_reply r;
	int err = sn_conn_call(conn, SOFTNIC_CTL_OP_LIST_DEVICES, &q, sizeof q, &r, sizeof r, NULL, NULL, NULL);
	struct ibv_device **longer;

	if (err)
		return err;
	if (r.n > sizeof r.names / sizeof r.names[0])
		return EPROTO;
	longer = realloc(*list, (*n + r.n + 1) * sizeof *longer);
	if (!longer)
		return ENOMEM;
	*list = longer;
	for (uint32_t i = 0; i < r.n; i++) {
		struct sn_device *d = device_new(r.names[i], r.guids[i], (int)*n);

		if (!d)
			return ENOMEM;
		longer[(*n)++] = &d->ibv;
		longer[*n] = NULL;
	}
	*count = r.n == 0 ? *n : r.count;
	return 0;
}

SN_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(1, sizeof *list);
	uint32_t n = 0, count = 1;
	struct sn_conn conn;
	int err = list ? sn_conn_open(&conn) : ENOMEM;

	if (num_devices)
		*num_devices = 0;
	if (!err) {
		while (!err && n < count)
			err = next_page(&conn, &list, &n, &count);
		sn_conn_close(&conn);
		if (err && err != ENOMEM)
			sn_say(SN_SAY_DAEMON, "the daemon does not list its devices: %s", strerror(err));
	} else if (err != ENOMEM) {
		return list; /* no daemon: no devices */
	}
	if (err) {
		if (list)
			ibv_free_device_list(list);
		errno = err;
		return NULL;
	}
	if (num_devices)
		*num_devices = (int)n;
	return list;
}

SN_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	for (struct ibv_device **p = list; *p; p++)
		sn_device_unref((struct sn_device *)*p);
	free(list);
}

SN_EXPORT const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

SN_EXPORT int ibv_get_device_index(struct ibv_device *device) { return ((struct sn_device *)device)->index; }

SN_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return __builtin_bswap64(((struct sn_device *)device)->guid);
}

SN_EXPORT const char *ibv_get_sysfs_path(void)
{
	const char *path = getenv("SYSFS_PATH");

	return path && *path ? path : "/sys";
}
