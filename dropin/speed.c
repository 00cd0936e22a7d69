/* The speed of a port as one number, for programs of releases after 44.0: NCCL looks for the call by dlvsym. */
#include "softnic.h"

int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);

/* Of a lane, in units of 100 Mb/s. */
static unsigned int lane_speed(uint8_t active_speed)
{
	switch (active_speed) {
	case 1: return 25;   /* SDR */
	case 2: return 50;   /* DDR */
	case 4:              /* QDR */
	case 8: return 100;  /* FDR10 */
	case 16: return 140; /* FDR */
	case 32: return 250; /* EDR */
	case 64: return 500; /* HDR */
	case 128: return 1000; /* NDR */
	default: return 0;
	}
}

static unsigned int lanes(uint8_t active_width)
{
	switch (active_width) {
	case 1: return 1;
	case 2: return 4;
	case 4: return 8;
	case 8: return 12;
	case 16: return 2;
	default: return 0;
	}
}

/* Sets *speed, in units of 100 Mb/s. */
SN_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct ibv_port_attr a;
	int err;

	if (port > UINT8_MAX)
		return EINVAL;
	memset(&a, 0, sizeof(a));
	err = sn_context_of(context)->verbs.query_port(context, (uint8_t)port, &a, sizeof(a));
	if (!err)
		*speed = (uint64_t)lane_speed(a.active_speed) * lanes(a.active_width);
	return err;
}
