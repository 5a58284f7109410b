/* c/…: messages of 128 bytes between two processes. ipc ipc how=ring|futex|unix|seqpacket|pipe|mq|tcp|sem load=flood|turns|wake seconds=S
 * flood: one way, as many as go; turns: there and back, one at a time; wake: the same, each after a pause of 1 ms, when the other one sleeps. */
#define _GNU_SOURCE
#include "protocol.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { SIZE = 128, SLOTS = 1024, SPIN_NS = 20000, KEEP = 1 << 20 };

/* One direction. The producer alone stores tail, the consumer alone head; who sleeps has stored its bell before it looked a last time. */
struct ring {
	_Atomic uint64_t head;
	char pad0[56];
	_Atomic uint64_t tail;
	char pad1[56];
	_Atomic uint32_t bell[2]; /* of the consumer, of the producer */
	char pad2[56];
	sem_t lock; /* how=sem */
	uint64_t count;
	char data[SLOTS][SIZE];
};

static struct ring *ring[2];
static int fds[2][2]; /* of a direction: where it is read, where it is written */
static mqd_t queue[2];
static int64_t spin = SPIN_NS;
static const char *how;
static int packets; /* a read brings one message; else it brings what is there */
static struct {
	size_t at, end;
	char b[1 << 16];
} came[2]; /* of a stream, and not taken yet */

static void sleep_at(_Atomic uint32_t *bell) { syscall(SYS_futex, bell, FUTEX_WAIT, 1, NULL, NULL, 0); }

static void ring_the(_Atomic uint32_t *bell) {
	if (atomic_load(bell) && atomic_exchange(bell, 0))
		syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static int has(struct ring *r, int room) {
	uint64_t n = atomic_load(&r->tail) - atomic_load(&r->head);
	return room ? n < SLOTS : n > 0;
}

static void await(struct ring *r, int room) {
	if (has(r, room))
		return;
	if (spin) {
		for (int64_t end = clock_ns(CLOCK_MONOTONIC) + spin; clock_ns(CLOCK_MONOTONIC) < end;)
			for (int i = 0; i < 32; i++) {
				if (has(r, room))
					return;
				__builtin_ia32_pause();
			}
	}
	while (!has(r, room)) {
		atomic_store(&r->bell[room], 1);
		if (has(r, room)) {
			atomic_store(&r->bell[room], 0);
			return;
		}
		sleep_at(&r->bell[room]);
	}
}

static void write_all(int fd, const char *b) {
	for (int n = 0; n < SIZE;) {
		ssize_t k = write(fd, b + n, SIZE - n);
		if (k <= 0)
			exit(1); /* the other one has ended */
		n += k;
	}
}

static void read_one(int way, char *b) {
	size_t left = came[way].end - came[way].at, most = packets ? SIZE : sizeof came[way].b;
	if (left < SIZE) {
		memmove(came[way].b, came[way].b + came[way].at, left);
		came[way].at = 0;
		came[way].end = left;
	}
	while (came[way].end - came[way].at < SIZE) {
		ssize_t k = read(fds[way][0], came[way].b + came[way].end, most - came[way].end);
		if (k <= 0)
			exit(1); /* the other one has ended */
		came[way].end += k;
	}
	memcpy(b, came[way].b + came[way].at, SIZE);
	came[way].at += SIZE;
}

/* A ring under a lock, as the article has it: a semaphore of value 1; who finds nothing lets others run. */
static void locked(struct ring *r, char *b, int writes) {
	for (;;) {
		sem_wait(&r->lock);
		uint64_t h = atomic_load_explicit(&r->head, memory_order_relaxed), t = atomic_load_explicit(&r->tail, memory_order_relaxed);
		if (writes ? t - h < SLOTS : t > h)
			break;
		sem_post(&r->lock);
		sched_yield();
	}
	if (writes)
		memcpy(r->data[r->tail++ % SLOTS], b, SIZE);
	else
		memcpy(b, r->data[r->head++ % SLOTS], SIZE);
	sem_post(&r->lock);
}

static void send_one(int way, char *b) {
	struct ring *r = ring[way];
	if (!strcmp(how, "sem"))
		return locked(r, b, 1);
	if (r) {
		await(r, 1);
		uint64_t t = atomic_load_explicit(&r->tail, memory_order_relaxed);
		memcpy(r->data[t % SLOTS], b, SIZE);
		atomic_store(&r->tail, t + 1);
		ring_the(&r->bell[0]);
	} else if (!strcmp(how, "mq")) {
		if (mq_send(queue[way], b, SIZE, 0))
			exit(1);
	} else
		write_all(fds[way][1], b);
}

static void receive(int way, char *b) {
	struct ring *r = ring[way];
	if (!strcmp(how, "sem"))
		return locked(r, b, 0);
	if (r) {
		await(r, 0);
		uint64_t h = atomic_load_explicit(&r->head, memory_order_relaxed);
		memcpy(b, r->data[h % SLOTS], SIZE);
		atomic_store(&r->head, h + 1);
		if (atomic_load(&r->tail) - h - 1 <= SLOTS / 2)
			ring_the(&r->bell[1]);
	} else if (!strcmp(how, "mq")) {
		if (mq_receive(queue[way], b, SIZE, NULL) < 0)
			exit(1);
	} else
		read_one(way, b);
}

static void tcp(void) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), x = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	if (bind(l, (void *)&a, n) || listen(l, 1) || getsockname(l, (void *)&a, &n) || connect(x, (void *)&a, n))
		die("tcp");
	int y = accept(l, NULL, NULL);
	setsockopt(x, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(y, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	fds[0][0] = fds[1][1] = y;
	fds[0][1] = fds[1][0] = x;
}

static void prepare(void) {
	int s[2];
	if (!strcmp(how, "ring") || !strcmp(how, "futex") || !strcmp(how, "sem")) {
		for (int i = 0; i < 2; i++) {
			ring[i] = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
			if (ring[i] == MAP_FAILED || sem_init(&ring[i]->lock, 1, 1))
				die("shared memory");
		}
		if (strcmp(how, "ring"))
			spin = 0;
	} else if (!strcmp(how, "unix") || !strcmp(how, "seqpacket")) {
		packets = !strcmp(how, "seqpacket");
		if (socketpair(AF_UNIX, strcmp(how, "unix") ? SOCK_SEQPACKET : SOCK_STREAM, 0, s))
			die("socketpair");
		fds[0][0] = fds[1][1] = s[0];
		fds[0][1] = fds[1][0] = s[1];
	} else if (!strcmp(how, "pipe")) {
		if (pipe(fds[0]) || pipe(fds[1]))
			die("pipe");
	} else if (!strcmp(how, "mq")) {
		for (int i = 0; i < 2; i++) {
			char name[64];
			struct mq_attr a = {.mq_maxmsg = 10, .mq_msgsize = SIZE}; /* the most that anybody may have */
			snprintf(name, sizeof name, "/tallywheel-lab-%d-%d", getpid(), i);
			if ((queue[i] = mq_open(name, O_CREAT | O_RDWR | O_EXCL, 0600, &a)) < 0)
				die("mq_open");
			mq_unlink(name);
		}
	} else if (!strcmp(how, "tcp"))
		tcp();
	else
		exit(2);
}

int main(int argc, char **argv) {
	static int64_t lat[KEEP];
	char b[SIZE] = {0};
	const char *load = param(argc, argv, "load");
	int flood = !strcmp(load, "flood"), pause = !strcmp(load, "wake");
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	how = param(argc, argv, "how");
	prepare();
	pid_t us = getpid();
	if (!fork()) { /* the other one: it answers messages that ask for it */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != us)
			return 0;
		for (;;) {
			receive(0, b);
			if (b[0])
				send_one(1, b);
		}
	}
	uint64_t ops = 0;
	size_t n = 0;
	int64_t began = ready(), now = began;
	while (now - began < length) {
		if (flood) {
			b[0] = 0;
			for (int i = 0; i < 256; i++, ops++)
				send_one(0, b);
			now = clock_ns(CLOCK_MONOTONIC);
			continue;
		}
		if (pause) {
			nanosleep(&(struct timespec){0, 1000000}, NULL);
			now = clock_ns(CLOCK_MONOTONIC);
		}
		b[0] = 1;
		send_one(0, b);
		receive(1, b);
		int64_t then = now;
		now = clock_ns(CLOCK_MONOTONIC);
		if (n < KEEP)
			lat[n++] = now - then;
		ops++;
	}
	if (flood) { /* until the last one is there */
		b[0] = 1;
		send_one(0, b);
		receive(1, b);
		ops++;
	}
	int64_t took = done(began);
	result("Ipc", ops, took, ops * SIZE / 1e6, lat, n);
	return 0;
}
