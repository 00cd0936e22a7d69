/* A program that is not linked with the library opens it by name, takes symbols by version as NCCL does, works, closes it,
 * and does so again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#undef ibv_get_device_list

static void *symbol(void *library, const char *name, const char *version)
{
	void *s = version ? dlvsym(library, name, version) : dlsym(library, name);

	if (!s) {
		fprintf(stderr, "%s@%s: %s\n", name, version ? version : "", dlerror());
		exit(1);
	}
	return s;
}

/* POSIX lets an object pointer be the address of a function; ISO C has no cast for it. */
#define TAKE(function, name, version) (*(void **)&(function) = symbol(library, name, version))

static int once(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	int n = 0, failed;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	TAKE(get_device_list, "ibv_get_device_list", "IBVERBS_1.1");
	TAKE(free_device_list, "ibv_free_device_list", "IBVERBS_1.1");
	TAKE(open_device, "ibv_open_device", "IBVERBS_1.1");
	TAKE(close_device, "ibv_close_device", "IBVERBS_1.1");
	TAKE(alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1");
	TAKE(dealloc_pd, "ibv_dealloc_pd", NULL);
	symbol(library, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	symbol(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
	symbol(library, "ibv_query_ece", "IBVERBS_1.10");
	struct ibv_device **list = get_device_list(&n);
	struct ibv_context *context = list && n > 0 ? open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? alloc_pd(context) : NULL;

	failed = !pd || dealloc_pd(pd) || close_device(context);
	if (list)
		free_device_list(list);
	if (failed)
		fprintf(stderr, "the library does not work when it was opened by name\n");
	return dlclose(library) || failed;
}

int main(void)
{
	for (int i = 0; i < 10; i++)
		if (once())
			return 1;
	return 0;
}
