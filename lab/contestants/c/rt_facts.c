/* Facts about threads and the processor, asked once. rt_facts fact ask=stack|invlpg */
#define _GNU_SOURCE
#include "facts.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;

static void refused(int signal) {
	siglongjmp(back, signal);
}

/* stack asks how large the stack of a thread is that nobody has said anything about. */
static int stack(char *found, size_t n) {
	pthread_attr_t a;
	size_t size = 0;
	if (pthread_getattr_default_np(&a) || pthread_attr_getstacksize(&a, &size))
		die("pthread_getattr_default_np");
	snprintf(found, n, "%zu KiB of addresses, of which pages are mapped as they are touched", size >> 10);
	return size >= 2u << 20 && size <= 8u << 20;
}

/* invlpg asks whether a program may throw a page out of the TLB. */
static int invlpg(char *found, size_t n) {
#if defined(__x86_64__) || defined(__i386__)
	struct sigaction on = {.sa_handler = refused};
	int got;
	sigaction(SIGSEGV, &on, NULL);
	if ((got = sigsetjmp(back, 1))) {
		snprintf(found, n, "the instruction ends in signal %d (%s)", got, strsignal(got));
		return 0;
	}
	__asm__ volatile("invlpg (%0)" ::"r"(&back) : "memory");
	snprintf(found, n, "the instruction was carried out");
	return 1;
#else
	snprintf(found, n, "this processor has no such instruction");
	return 0;
#endif
}
