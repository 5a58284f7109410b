/* Facts about io_uring, by system calls alone; ask=NAME says which. */
#define _GNU_SOURCE
#include "facts.h"

#include <dirent.h>
#include <grp.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct ring {
	int fd;
	struct io_uring_params p;
	char *queues;
	struct io_uring_sqe *sqes;
};

#define SHARED(r, off) ((unsigned *)((r)->queues + (off)))
static unsigned load(unsigned *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void store(unsigned *p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

static int setup(struct ring *r, unsigned entries) {
	r->fd = syscall(SYS_io_uring_setup, entries, &r->p);
	return r->fd < 0 ? -errno : 0;
}

/* map maps both queues at once and the entries. */
static void map(struct ring *r) {
	size_t sq = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned), cq = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	if (!(r->p.features & IORING_FEAT_SINGLE_MMAP))
		unknown("a kernel before 5.4, which this program does not know");
	r->queues = mmap(0, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(0, r->p.sq_entries * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	if (r->queues == MAP_FAILED || (void *)r->sqes == MAP_FAILED)
		die("mmap of a ring");
}

static struct ring *need(unsigned entries, struct io_uring_params p) {
	static struct ring r;
	int e;
	r.p = p;
	if ((e = setup(&r, entries)))
		unknown("io_uring_setup: %s", strerror(-e));
	map(&r);
	return &r;
}

static struct io_uring_sqe *push(struct ring *r) {
	unsigned *tail = SHARED(r, r->p.sq_off.tail), i = *tail & (r->p.sq_entries - 1);
	memset(&r->sqes[i], 0, sizeof r->sqes[i]);
	SHARED(r, r->p.sq_off.array)[i] = i;
	return &r->sqes[i];
}

static void pushed(struct ring *r) {
	unsigned *tail = SHARED(r, r->p.sq_off.tail);
	store(tail, *tail + 1);
}

static int enter(struct ring *r, unsigned submit, unsigned wait, unsigned flags) {
	int n = syscall(SYS_io_uring_enter, r->fd, submit, wait, flags, 0, 0);
	return n < 0 ? -errno : n;
}

/* one submits what was pushed last and returns its result. */
static int one(struct ring *r) {
	unsigned *head = SHARED(r, r->p.cq_off.head);
	int e;
	pushed(r);
	if ((e = enter(r, 1, 1, IORING_ENTER_GETEVENTS)) < 0)
		return e;
	for (int64_t began = clock_ns(CLOCK_MONOTONIC); load(SHARED(r, r->p.cq_off.tail)) == *head;) { /* a ring that polls may come back with nothing */
		if (clock_ns(CLOCK_MONOTONIC) - began > 2000000000)
			unknown("an operation of a ring does not complete within 2 s");
		if ((e = enter(r, 0, 1, IORING_ENTER_GETEVENTS)) < 0)
			return e;
	}
	e = ((struct io_uring_cqe *)(r->queues + r->p.cq_off.cqes))[*head & (r->p.cq_entries - 1)].res;
	store(head, *head + 1);
	return e;
}

/* Is a polling thread refused to a user without capabilities? */
static void sqpoll_needs_root(void) {
	struct ring r = {.p = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1}};
	int e;
	if (!geteuid() && (setgroups(0, 0) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
		unknown("root, who cannot become another user: %s", strerror(errno));
	e = setup(&r, 8);
	answer(e == -EPERM, "io_uring_setup with IORING_SETUP_SQPOLL as uid %d, without capabilities: %s", geteuid(), e ? strerror(-e) : "a ring");
}

static void three_maps(void) {
	struct ring r = {0};
	if (setup(&r, 8))
		die("io_uring_setup");
	if (!(r.p.features & IORING_FEAT_SINGLE_MMAP))
		answer(1, "this kernel has no IORING_FEAT_SINGLE_MMAP");
	map(&r);
	push(&r)->opcode = IORING_OP_NOP;
	answer(one(&r) != 0, "both queues in one map, the entries in another, and an operation completes (IORING_FEAT_SINGLE_MMAP); sq_off tells where things lie in the map, not what to map");
}

static void sq_wait(void) {
	struct ring *r = need(4, (struct io_uring_params){.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1});
	int e;
	unsigned left;
	usleep(20000); /* until its thread sleeps, which does not matter if it has not */
	for (int i = 0; i < 4; i++) {
		push(r)->opcode = IORING_OP_NOP;
		pushed(r);
	}
	e = enter(r, 0, 0, IORING_ENTER_SQ_WAKEUP | IORING_ENTER_SQ_WAIT);
	left = *SHARED(r, r->p.sq_off.tail) - load(SHARED(r, r->p.sq_off.head));
	answer(e >= 0 && left < 4, "with a queue of 4 full, io_uring_enter(IORING_ENTER_SQ_WAIT) came back (%s) when %u of 4 entries were left", e < 0 ? strerror(-e) : "0", left);
}

static void iopoll(const char *dir) {
	char path[4096];
	void *block;
	struct ring *r;
	struct io_uring_sqe *s;
	int fd, n;
	snprintf(path, sizeof path, "%s/iopoll", dir);
	if (posix_memalign(&block, 4096, 4096))
		die("memory");
	memset(block, 1, 4096);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (fd < 0 || write(fd, block, 4096) != 4096 || fsync(fd))
		die(path);
	unlink(path);
	r = need(4, (struct io_uring_params){.flags = IORING_SETUP_IOPOLL});
	s = push(r);
	s->opcode = IORING_OP_READ, s->fd = fd, s->addr = (uintptr_t)block, s->len = 4096;
	n = one(r);
	if (n == -EOPNOTSUPP)
		unknown("a disk with queues for polling: a read through a ring with IORING_SETUP_IOPOLL gives EOPNOTSUPP on this one");
	answer(n == 4096, "a read through a ring with IORING_SETUP_IOPOLL: %d", n);
}

static void poll_apart(void) {
	struct ring a = {.p = {.flags = IORING_SETUP_IOPOLL}}, b = {.p = {.flags = IORING_SETUP_SQPOLL}}, both = {.p = {.flags = IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL}};
	int e = setup(&a, 4), f = setup(&b, 4), g = setup(&both, 4);
	answer(!e, "IORING_SETUP_IOPOLL alone: %s; SQPOLL alone: %s; both: %s", e ? strerror(-e) : "a ring", f ? strerror(-f) : "a ring", g ? strerror(-g) : "a ring");
}

/* of_poller finds the CPUs of the polling thread among the tasks of this process. */
static int of_poller(char *name, size_t size, cpu_set_t *cpus) {
	struct dirent *d;
	int found = 0;
	DIR *tasks = opendir("/proc/self/task");
	while (tasks && !found && (d = readdir(tasks))) {
		char path[300];
		ssize_t n;
		int fd;
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
		if ((fd = open(path, O_RDONLY)) < 0)
			continue;
		n = read(fd, name, size - 1);
		close(fd);
		if (n > 0)
			name[n - 1] = 0;
		found = n > 0 && !strncmp(name, "iou-sqp", 7) && !sched_getaffinity(atoi(d->d_name), sizeof *cpus, cpus);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

static void sq_affinity(void) {
	cpu_set_t mine, its;
	char name[64];
	int cpu = CPU_SETSIZE;
	sched_getaffinity(0, sizeof mine, &mine);
	if (CPU_COUNT(&mine) < 2)
		unknown("a second CPU");
	while (!CPU_ISSET(--cpu, &mine))
		;
	need(4, (struct io_uring_params){.flags = IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF, .sq_thread_cpu = cpu, .sq_thread_idle = 2000});
	for (int tries = 0; tries < 1000; tries++, usleep(1000)) /* it is bound when it begins to run */
		if (of_poller(name, sizeof name, &its) && (CPU_COUNT(&its) == 1 || tries == 999))
			answer(CPU_COUNT(&its) == 1 && CPU_ISSET(cpu, &its), "thread %s may run on %d CPU; asked was CPU %d of %d", name, CPU_COUNT(&its), cpu, CPU_COUNT(&mine));
	unknown("the polling thread is not among those of the process");
}

/* Numbers of operations are given in the order in which kernels got them. */
static void statx_is_new(void) {
	answer(IORING_OP_STATX > IORING_OP_SPLICE, "IORING_OP_STATX is number %d, IORING_OP_SPLICE, which is of Linux 5.7, number %d: they are numbered as they came", IORING_OP_STATX, IORING_OP_SPLICE);
}

static void len_is_size(void) {
	struct ring *r = need(4, (struct io_uring_params){0});
	unsigned char out[sizeof(struct statx)];
	struct io_uring_sqe *s = push(r);
	int n, last = 0;
	memset(out, 0xAA, sizeof out);
	s->opcode = IORING_OP_STATX, s->fd = AT_FDCWD, s->addr = (uintptr_t) "/", s->len = STATX_NLINK, s->off = (uintptr_t)out;
	n = one(r);
	for (size_t i = 0; i < sizeof out; i++)
		if (out[i] != 0xAA)
			last = i + 1;
	answer(n == 0 && last <= STATX_NLINK, "a statx with len %d gave %d and wrote %d bytes: len is the mask of what is asked for (STATX_NLINK), and the size is fixed", STATX_NLINK, n, last);
}

int main(int argc, char **argv) {
	const char *ask = param(argc, argv, "ask");
	static const struct {
		const char *name;
		void (*ask)(void);
	} all[] = {{"sqpoll-needs-root", sqpoll_needs_root}, {"three-maps", three_maps}, {"sq-wait", sq_wait}, {"poll-apart", poll_apart}, {"sq-affinity", sq_affinity}, {"statx-is-new", statx_is_new}, {"len-is-size", len_is_size}};
	if (!strcmp(ask, "iopoll"))
		iopoll(param(argc, argv, "dir"));
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(ask, all[i].name))
			all[i].ask();
	unknown("ask=%s is not known", ask);
}
