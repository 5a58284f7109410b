/* Facts about threads and the processor. facts_rt fact ask=stack|invlpg */
#define _GNU_SOURCE
#include "facts.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

/* stack asks how large the stack of a thread is that nobody has said anything about. */
static void stack(void) {
	pthread_attr_t a;
	size_t size = 0;
	if (pthread_getattr_default_np(&a) || pthread_attr_getstacksize(&a, &size))
		unknown("no default size of stacks");
	answer(size >= 2u << 20 && size <= 8u << 20, "%zu KiB of addresses, of which a page is mapped when it is touched", size >> 10);
}

#if defined(__x86_64__) || defined(__i386__)
static sigjmp_buf back;

static void refused(int signal) {
	siglongjmp(back, signal);
}

/* invlpg asks whether a program may throw a page out of the TLB. */
static void invlpg(void) {
	struct sigaction on = {.sa_handler = refused};
	sigaction(SIGSEGV, &on, NULL);
	int got = sigsetjmp(back, 1);
	if (got)
		answer(0, "the instruction ends in signal %d (%s)", got, strsignal(got));
	__asm__ volatile("invlpg (%0)" ::"r"(&back) : "memory");
	answer(1, "the instruction was carried out");
}
#else
static void invlpg(void) {
	unknown("INVLPG is an instruction of x86");
}
#endif

int main(int argc, char **argv) {
	if (!strcmp(param(argc, argv, "ask"), "stack"))
		stack();
	if (!strcmp(param(argc, argv, "ask"), "invlpg"))
		invlpg();
	unknown("ask=%s is not known", param(argc, argv, "ask"));
}
