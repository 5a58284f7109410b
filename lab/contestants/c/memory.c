/* c/…: allocates and frees for hours of a device, in a time that is as short as the machine is fast, within a bound. memory memory seconds=S
 * With the allocator that it is linked with. The sizes and the order are those of all contestants: see package rtmemory. */
#define _GNU_SOURCE
#include "protocol.h"
#include <sys/resource.h>

enum { SLOTS = 1 << 16, PHASE = 90000, HOUR = 360000, BLOCK = 2 << 20 };
#define BOUND (64ull << 20)
#define LIVE (BOUND / 2)

static struct {
	char *at;
	uint32_t size;
} slot[SLOTS];
static uint64_t seed = 88172645463325252, live, ops, failed;

static uint64_t draw(void) {
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static uint32_t next_size(void) {
	uint64_t r = draw();
	switch (ops / PHASE % 4) {
	case 0:
		return 16 + r % 240;
	case 2:
		return 1024 + r % 7168;
	}
	return r & 1 ? 16 + (r >> 1) % 240 : 1024 + (r >> 1) % 7168;
}

static void let_go(uint32_t i) {
	free(slot[i].at);
	live -= slot[i].size;
	slot[i].at = NULL;
	slot[i].size = 0;
}

static void step(void) {
	uint32_t n = next_size(), i = draw() % SLOTS;
	let_go(i);
	while (live + n > LIVE)
		let_go(draw() % SLOTS);
	if ((slot[i].at = malloc(n))) {
		slot[i].at[0] = slot[i].at[n - 1] = 1;
		slot[i].size = n;
		live += n;
	} else
		failed++;
	ops++;
}

/* status is a line of /proc/self/status, in bytes. */
static uint64_t status(const char *name) {
	char line[256];
	uint64_t kb = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name)))
			kb = strtoull(line + strlen(name), NULL, 10);
	if (!f || fclose(f) || !kb)
		die("/proc/self/status");
	return kb << 10;
}

int main(int argc, char **argv) {
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	uint64_t before = status("RssAnon:");
	struct rlimit bound = {status("VmData:") + BOUND, RLIM_INFINITY};
	if (setrlimit(RLIMIT_DATA, &bound))
		die("setrlimit");
	int64_t began = ready();
	while (clock_ns(CLOCK_MONOTONIC) - began < length)
		for (int i = 0; i < 1000; i++)
			step();
	uint64_t resident = status("RssAnon:") - before, most = (BOUND - live) / BLOCK, got = 0;
	for (char *p; got < most && (p = malloc(BLOCK)); got++)
		for (int at = 0; at < BLOCK; at += 4096)
			((volatile char *)p)[at] = 1;
	setrlimit(RLIMIT_DATA, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
	int64_t took = done(began);
	printf("BenchmarkMemory %llu 1 ns/op %g fragmentation_percent %llu failed_allocations %g dead_percent %g simulated_hours\n", (unsigned long long)ops,
		   100 * (1 - (double)got / most), (unsigned long long)failed, resident > live ? 100 * (1 - (double)live / resident) : 0, (double)ops / HOUR);
	result("Memory", ops, took, 0, NULL, 0);
	return 0;
}
