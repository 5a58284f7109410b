/* c: is triggered, stamps the time, aggregates, and pushes that into the queue of results (descriptor 3). suite suite trigger=timer|event seconds=S
 * Descriptor 4 is an eventfd: its first number is the start, each after it an event, and one of END or more the last. Ticks are the processor's own. */
#define _GNU_SOURCE
#include "protocol.h"
#include "queue.h"
#include <sched.h>
#include <sys/prctl.h>

enum { EVERY = 200000, END = 1000, BINS = 64 };

static inline uint64_t ticks(void) {
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return clock_ns(CLOCK_MONOTONIC);
#endif
}

static struct {
	uint64_t bins[BINS], n, sum, most;
	double squares;
} all;

static void aggregate(uint64_t v) {
	all.bins[v ? 63 - __builtin_clzll(v) : 0]++;
	all.n++;
	all.sum += v;
	all.squares += (double)v * v;
	if (v > all.most)
		all.most = v;
}

/* tell_clock pushes what the ticks are at a time: the closest of some pairs. */
static void tell_clock(void) {
	struct record r = {.kind = CLOCK};
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < 100; i++) {
		uint64_t before = ticks(), ns = clock_ns(CLOCK_MONOTONIC), took = ticks() - before;
		if (took < least) {
			least = took;
			r.due = ns;
			r.woke = before + took / 2;
		}
	}
	queue_push(&r);
}

static uint64_t number(void) {
	uint64_t n = 0;
	if (read(4, &n, sizeof n) != sizeof n)
		die("events");
	return n;
}

int main(int argc, char **argv) {
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	int timer = !strcmp(param(argc, argv, "trigger"), "timer");
	queue_open(3);
	prctl(PR_SET_TIMERSLACK, 1);
	sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 80}); /* where it is allowed */
	tell_clock();
	number();
	uint64_t push = 0, last = ticks();
	for (int64_t next = clock_ns(CLOCK_MONOTONIC) + EVERY, end = next + length; next < end;) {
		if (timer) {
			struct timespec t = {next / 1000000000, next % 1000000000};
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		} else if (number() >= END)
			break;
		uint64_t woke = ticks();
		uint64_t stamped = ticks();
		aggregate(woke - last);
		uint64_t aggregated = ticks();
		struct record r = {SAMPLE, timer ? next : 0, woke, stamped, aggregated, push, {0}};
		queue_push(&r);
		push = ticks() - aggregated;
		last = woke;
		if (timer)
			for (int64_t now = clock_ns(CLOCK_MONOTONIC); next <= now;)
				next += EVERY;
	}
	tell_clock();
	queue_close();
	return all.n == 0;
}
