/* c/…: two threads of one CPU that wake each other in turns, by futex(2) or by a condition variable; and the memory of a thread that waits. switch switch how=futex|condvar seconds=S */
#define _GNU_SOURCE
#include "protocol.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define WAITERS (sizeof(void *) == 4 ? 100 : 500) /* the stack of each has 8 MB of addresses */

static atomic_int turn; /* whose it is: 0, 1, or -1 at the end */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int by_futex;

/* give says whose turn it is, and wakes the one. */
static void give(int to) {
	if (by_futex) {
		atomic_store(&turn, to);
		syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL);
		return;
	}
	pthread_mutex_lock(&lock);
	turn = to;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* await waits while it is the other's turn; 0 at the end. */
static int await(int other) {
	int is;
	if (by_futex) {
		while ((is = atomic_load(&turn)) == other)
			syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, other, NULL);
		return is >= 0;
	}
	pthread_mutex_lock(&lock);
	while ((is = turn) == other)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return is >= 0;
}

static void *second(void *unused) {
	while (await(0))
		give(0);
	return unused;
}

static void *wait_for_ever(void *unused) {
	pause();
	return unused;
}

static long resident(void) {
	long all, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2)
		die("/proc/self/statm");
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv) {
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	uint64_t switches = 0;
	pthread_t other;
	cpu_set_t one;
	by_futex = !strcmp(param(argc, argv, "how"), "futex");
	long before = resident();
	for (int i = 0; i < WAITERS; i++)
		if (pthread_create(&other, NULL, wait_for_ever, NULL))
			die("pthread_create");
	usleep(20000); /* until they wait */
	double each = (double)(resident() - before) / WAITERS;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof one, &one) || pthread_create(&other, NULL, second, NULL))
		die("second thread");
	int64_t began = ready();
	do {
		for (int i = 0; i < 256; i++) {
			give(1);
			await(1);
		}
		switches += 512;
	} while (clock_ns(CLOCK_MONOTONIC) - began < length);
	int64_t took = done(began);
	give(-1);
	pthread_join(other, NULL);
	printf("BenchmarkSwitch %llu 1 ns/op %g waiting_bytes\n", (unsigned long long)switches, each);
	result("Switch", switches, took, 0, NULL, 0);
	return 0;
}
