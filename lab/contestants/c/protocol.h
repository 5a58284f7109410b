/* The laboratory's protocol for contestants in C; package lab/contestant describes it. Parameters are KEY=VALUE behind the name. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t which) {
	struct timespec t;
	clock_gettime(which, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

__attribute__((unused)) static const char *param(int argc, char **argv, const char *key) {
	size_t n = strlen(key);
	for (int i = 2; i < argc; i++)
		if (!strncmp(argv[i], key, n) && argv[i][n] == '=')
			return argv[i] + n + 1;
	return "";
}

__attribute__((unused)) static void die(const char *what) {
	perror(what);
	exit(1);
}

/* ready says so, waits for the start, and returns its time in ns. */
__attribute__((unused)) static int64_t ready(void) {
	char go[3];
	puts("ready");
	fflush(stdout);
	for (size_t have = 0; have < sizeof go;) {
		ssize_t n = read(0, go + have, sizeof go - have);
		if (n <= 0)
			exit(1);
		have += n;
	}
	return clock_ns(CLOCK_MONOTONIC);
}

/* done ends the work of a program that has worked for its time: it waits until it has been looked at. Returns how long the work took, in ns. */
__attribute__((unused)) static int64_t done(int64_t began) {
	int64_t took = clock_ns(CLOCK_MONOTONIC) - began;
	char c;
	puts("done");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return took;
}

static int by_size(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

/* result prints the line of results; latencies may be none. */
__attribute__((unused)) static void result(const char *name, uint64_t ops, int64_t took, double mb, int64_t *lat, size_t n) {
	static const struct {
		const char *name;
		double p;
	} ps[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}};
	printf("Benchmark%s %llu %g ns/op %g MB_per_s", name, (unsigned long long)ops, (double)took / ops, mb / took * 1e9);
	if (n) {
		qsort(lat, n, sizeof *lat, by_size);
		for (size_t i = 0; i < sizeof ps / sizeof *ps; i++)
			if (ps[i].p < 0.99 || n * (1 - ps[i].p) >= 5)
				printf(" %g latency_us_%s", lat[(size_t)(n * ps[i].p)] / 1e3, ps[i].name);
		printf(" %g latency_us_max", lat[n - 1] / 1e3);
	}
	puts("");
}
