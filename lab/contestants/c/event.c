/* c: hears of events, and says how late. The thread that waits is on the last CPU that it may have, in SCHED_FIFO 80, where that is allowed. event event event=eventfd|pipe|timerfd|signal|gpio seconds=S
 * Another thread, on the first CPU, makes an event EVERY ns behind the moment at which the one before was heard; a timerfd expires so often by itself. gpio: TALLYWHEEL_GPIO=/dev/gpiochipN:OUT:IN names two
 * lines that a wire connects; an edge carries the time at which the kernel's interrupt handler saw it. */
#define _GNU_SOURCE
#include "protocol.h"
#include <glob.h>
#include <linux/gpio.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>

#define EVERY 200000
#define MOST (1 << 18)

static int in, out;				 /* where an event is read, and made */
static pthread_t waiter;
static const char *kind;
static int64_t length, late[MOST];
static _Atomic int64_t made, heard;		 /* when the event was made; how many were heard */
static _Atomic int over;

static struct timespec at(int64_t ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }

/* take_cpu takes the first or the last CPU of those that were allowed at the start. */
static void take_cpu(int last) {
	static cpu_set_t allowed;
	cpu_set_t one;
	if (!CPU_COUNT(&allowed) && sched_getaffinity(0, sizeof allowed, &allowed))
		die("affinity");
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &allowed) && (last || !CPU_COUNT(&one))) {
			CPU_ZERO(&one);
			CPU_SET(i, &one);
		}
	if (sched_setaffinity(0, sizeof one, &one))
		die("affinity");
}

static void hear(int64_t since) {
	int64_t n = heard;
	late[n % MOST] = clock_ns(CLOCK_MONOTONIC) - since;
	heard = n + 1;
}

static void on_signal(int number) {
	(void)number;
	hear(made);
}

static void set_line(int level) {
	struct gpio_v2_line_values v = {.bits = level, .mask = 1};
	if (ioctl(out, GPIO_V2_LINE_SET_VALUES_IOCTL, &v))
		die("gpio: set");
}

static void *make(void *none) {
	uint64_t one = 1;
	take_cpu(0);
	for (int64_t n = 0, next = clock_ns(CLOCK_MONOTONIC) + EVERY, end = next + length;; n++, next = clock_ns(CLOCK_MONOTONIC) + EVERY) {
		struct timespec t = at(next);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		over = next >= end;
		made = clock_ns(CLOCK_MONOTONIC);
		if (!strcmp(kind, "signal"))
			pthread_kill(waiter, SIGUSR1);
		else if (!strcmp(kind, "gpio"))
			set_line(!(n & 1));
		else if (write(out, &one, sizeof one) < 0)
			die("write");
		if (over)
			return none;
		while (heard <= n) /* it is asleep by the time of the next one */
			clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 20000}, NULL);
	}
}

static int line(int chip, int offset, uint64_t flags) {
	struct gpio_v2_line_request r = {.offsets = {offset}, .num_lines = 1, .consumer = "tallywheel", .config = {.flags = flags}};
	if (ioctl(chip, GPIO_V2_GET_LINE_IOCTL, &r))
		die("gpio: line");
	return r.fd;
}

static void open_lines(void) {
	char path[64];
	int o, i, chip;
	glob_t chips;
	const char *lines = getenv("TALLYWHEEL_GPIO");
	if (glob("/dev/gpiochip*", 0, NULL, &chips)) {
		fputs("no /dev/gpiochip*: this machine has no GPIO that the kernel offers to programs\n", stderr);
		exit(1);
	}
	if (!lines || sscanf(lines, "%63[^:]:%d:%d", path, &o, &i) != 3) {
		fprintf(stderr, "%s is here: connect two of its lines and name them: TALLYWHEEL_GPIO=%s:OUT:IN\n", chips.gl_pathv[0], chips.gl_pathv[0]);
		exit(1);
	}
	if ((chip = open(path, O_RDWR | O_CLOEXEC)) < 0)
		die(path);
	out = line(chip, o, GPIO_V2_LINE_FLAG_OUTPUT);
	in = line(chip, i, GPIO_V2_LINE_FLAG_INPUT | GPIO_V2_LINE_FLAG_EDGE_RISING | GPIO_V2_LINE_FLAG_EDGE_FALLING);
}

static void prepare(void) {
	int p[2];
	if (!strcmp(kind, "eventfd"))
		in = out = eventfd(0, EFD_CLOEXEC);
	else if (!strcmp(kind, "timerfd"))
		in = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	else if (!strcmp(kind, "gpio"))
		open_lines();
	else if (!strcmp(kind, "pipe") && !pipe(p)) {
		in = p[0];
		out = p[1];
	} else if (!strcmp(kind, "signal"))
		sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
	else
		exit(2);
	if (in < 0)
		die(kind);
}

/* by_timer hears a timer that expires each EVERY ns: one event a read, that of the first expiration which it tells. */
static void by_timer(int64_t began) {
	uint64_t n;
	struct itimerspec grid = {at(EVERY), at(began + EVERY)};
	if (timerfd_settime(in, TFD_TIMER_ABSTIME, &grid, NULL))
		die("timerfd");
	for (int64_t next = began + EVERY; next < began + length; next += n * EVERY) {
		if (read(in, &n, sizeof n) < 0)
			die("read");
		hear(next);
	}
}

static void wait_for(void) {
	char b[sizeof(struct gpio_v2_line_event)] __attribute__((aligned(8)));
	while (!over) {
		if (read(in, b, sizeof b) < 0)
			die("read");
		hear(strcmp(kind, "gpio") ? made : (int64_t)((struct gpio_v2_line_event *)b)->timestamp_ns);
	}
}

int main(int argc, char **argv) {
	pthread_t maker;
	length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	kind = param(argc, argv, "event");
	waiter = pthread_self();
	memset(late, 1, sizeof late);
	prepare();
	take_cpu(1);
	mlockall(MCL_CURRENT | MCL_FUTURE); /* these two as far as they are allowed: the others do without, too */
	int64_t began = ready();
	if (!strcmp(kind, "timerfd")) {
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 80});
		prctl(PR_SET_TIMERSLACK, 1);
		by_timer(began);
	} else {
		sigset_t usr, before;
		sigemptyset(&usr);
		sigaddset(&usr, SIGUSR1);
		pthread_sigmask(SIG_BLOCK, &usr, &before); /* until it waits, and in the thread that sends it */
		if (pthread_create(&maker, NULL, make, NULL))
			die("thread");
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 80});
		if (!strcmp(kind, "signal"))
			while (!over)
				sigsuspend(&before);
		else
			wait_for();
		pthread_join(maker, NULL);
	}
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
	int64_t took = done(began);
	result("Event", heard, took, 0, late, heard < MOST ? heard : MOST);
	return 0;
}
