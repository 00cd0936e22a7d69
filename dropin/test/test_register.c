/* Registers and deregisters many times, overlapping regions among them, and has 20 seconds for 100,000. The number can be
 * given: under valgrind fewer do. */
#include "testing.h"

int main(int argc, char **argv)
{
	struct ibv_context *context = test_open();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int n = argc > 1 ? atoi(argv[1]) : 100000;
	uint8_t *mem = aligned_alloc(4096, 1 << 20);
	struct ibv_mr *kept[16] = { 0 };
	uint64_t begin = test_now_ns(), took;

	REQUIRE(pd && mem);
	memset(mem, 1, 1 << 20);
	for (int i = 0; i < n; i++) {
		struct ibv_mr **slot = &kept[i % 16];
		size_t offset = (size_t)i * 7919 % (1 << 19), length = 1 + (size_t)i * 104729 % (1 << 18);

		if (*slot)
			REQUIRE_EQ(ibv_dereg_mr(*slot), 0);
		*slot = ibv_reg_mr(pd, mem + offset, length, ALL_ACCESS);
		REQUIRE(*slot != NULL);
		REQUIRE((*slot)->addr == mem + offset && (*slot)->length == length);
	}
	for (int i = 0; i < 16; i++)
		if (kept[i])
			REQUIRE_EQ(ibv_dereg_mr(kept[i]), 0);
	took = test_now_ns() - begin;
	printf("%d registrations in %.2f s\n", n, (double)took / 1e9);
	REQUIRE(took < 20000000000u);
	REQUIRE_ERRNO(ibv_reg_mr(pd, mem, 100, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	free(mem);
	REQUIRE_EQ(ibv_dealloc_pd(pd), 0);
	REQUIRE_EQ(ibv_close_device(context), 0);
	return 0;
}
