/* The end of a ring of package ipc that a program in C fills: results for the laboratory, each of 64 bytes. ARCHITECTURE.md and package ring say why the orders are right. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct record {
	uint64_t kind, due, woke, stamped, aggregated, push, more[2]; /* due in ns, the others in ticks */
};
enum { CLOCK = 1, SAMPLE = 2 };

static struct queue {
	char *data;
	uint64_t size, at, taken; /* at: published so far; taken: as it was last seen */
	_Atomic uint64_t *head, *tail;
	_Atomic uint32_t *life, *bell;
} queue;

static void queue_open(int fd) {
	uint64_t *h = mmap(NULL, 512, PROT_READ, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED || h[0] != 0x676e69722d6c6174 || h[1] != 1)
		die("the queue");
	uint64_t header = 512 + h[3];
	char *m = mmap(NULL, header + h[2], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (m == MAP_FAILED)
		die("the queue");
	queue = (struct queue){.data = m + header, .size = h[2], .head = (void *)(m + 128), .tail = (void *)(m + 256)};
	queue.life = (void *)(m + 512 + 64); /* of who fills it: odd while it is taken */
	queue.bell = (void *)(m + 512 + 256); /* of who empties it: for how many bytes it sleeps */
	queue.at = atomic_load(queue.head);
	atomic_store(queue.life, (atomic_load(queue.life) + 1) | 1);
}

static void queue_push(const struct record *r) {
	if (queue.at - queue.taken > queue.size - sizeof *r && queue.at - (queue.taken = atomic_load(queue.tail)) > queue.size - sizeof *r) {
		fputs("the queue of results is full\n", stderr);
		exit(1);
	}
	memcpy(queue.data + (queue.at & (queue.size - 1)), r, sizeof *r);
	atomic_store(queue.head, queue.at += sizeof *r);
	uint32_t want = atomic_load(queue.bell);
	if (want && queue.at - atomic_load(queue.tail) >= want && atomic_exchange(queue.bell, 0))
		syscall(SYS_futex, queue.bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void queue_close(void) {
	atomic_fetch_add(queue.life, 1);
	atomic_store(queue.bell, 0);
	syscall(SYS_futex, queue.bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
