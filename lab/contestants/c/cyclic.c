/* c/…: wakes up each period and says how late: by clock_nanosleep or by a timerfd. In SCHED_FIFO 80 with locked memory, where that is allowed. cyclic cyclic how=nanosleep|timerfd interval_us=N seconds=S [phase_ns=N cpu=N]
 * With phase_ns each release is so far behind a multiple of the interval, by CLOCK_MONOTONIC, and the first is printed, and each one that was missed: first: NS, missed: NS. */
#define _GNU_SOURCE
#include "protocol.h"
#include <math.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>

#define MOST (1 << 22)
#define TOLD (1 << 16) /* releases missed that are printed */

static struct timespec at(int64_t ns) {
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	return t;
}

int main(int argc, char **argv) {
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9), every = atoll(param(argc, argv, "interval_us")) * 1000;
	int by_timerfd = !strcmp(param(argc, argv, "how"), "timerfd");
	struct sched_param fifo = {.sched_priority = 80};
	size_t room = every > 0 ? length / every + 2 : 0, n = 0;
	const char *phase = param(argc, argv, "phase_ns"), *cpu = param(argc, argv, "cpu");
	static int64_t gone[TOLD];
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(atoi(cpu), &one);
	if (*cpu && sched_setaffinity(0, sizeof one, &one))
		die("sched_setaffinity");
	int64_t *late = room && room < MOST ? malloc(room * sizeof *late) : NULL;
	if (!late)
		return 2;
	memset(late, 1, room * sizeof *late);
	mlockall(MCL_CURRENT | MCL_FUTURE); /* these two as far as they are allowed: the others do without, too */
	sched_setscheduler(0, SCHED_FIFO, &fifo);
	prctl(PR_SET_TIMERSLACK, 1);
	int64_t began = ready(), next = began + every, before = 0;
	if (*phase)
		next = (began / every + 1) * every + atoll(phase);
	int64_t first = next;
	uint64_t missed = 0, told;
	double sum = 0, squares = 0;
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec grid = {at(every), at(next)};
	if (timer < 0 || timerfd_settime(timer, TFD_TIMER_ABSTIME, &grid, NULL))
		die("timerfd");
	while (next < began + length && n < room) {
		int64_t woke;
		if (by_timerfd) {
			do { /* an expiration that was missed may still be told */
				if (read(timer, &told, sizeof told) < 0)
					die("read");
				woke = clock_ns(CLOCK_MONOTONIC);
			} while (woke < next);
		} else {
			struct timespec t = at(next);
			while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
				;
			woke = clock_ns(CLOCK_MONOTONIC);
		}
		late[n++] = woke - next;
		if (before) {
			double longer = woke - before - every;
			sum += longer;
			squares += longer * longer;
		}
		before = woke;
		for (next += every; next <= woke; next += every)
			gone[missed++ % TOLD] = next;
	}
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
	int64_t took = done(began);
	if (*phase)
		printf("first: %lld\n", (long long)first);
	for (uint64_t i = 0; *phase && i < missed && i < TOLD; i++)
		printf("missed: %lld\n", (long long)gone[i]);
	double gaps = n > 1 ? n - 1 : 1, variance = gaps > 1 ? (squares - sum * sum / gaps) / (gaps - 1) : 0;
	printf("BenchmarkCyclic %zu 1 ns/op %llu missed_releases %g period_stddev_us\n", n, (unsigned long long)missed, sqrt(variance > 0 ? variance : 0) / 1e3);
	result("Cyclic", n, took, 0, late, n);
	return 0;
}
