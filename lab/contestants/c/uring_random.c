/* c/liburing: random reads of 4 KiB past the page cache, depth in flight, submitted and reaped batch at a time, by one thread.
   uring_random random file=PATH depth=N batch=N seconds=S */
#define _GNU_SOURCE
#include "protocol.h"
#include <liburing.h>
#include <sys/stat.h>

enum { BLOCK = 4096 };

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) { /* xorshift64 */
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

int main(int argc, char **argv) {
	const char *path = param(argc, argv, "file");
	int depth = atoi(param(argc, argv, "depth")), batch = atoi(param(argc, argv, "batch")), fd = open(path, O_RDONLY | O_DIRECT);
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	struct stat st;
	struct io_uring ring;
	if (fd < 0 || fstat(fd, &st))
		die(path);
	if (depth < 1 || batch < 1)
		return 2;
	state ^= clock_ns(CLOCK_MONOTONIC); /* other blocks in each turn: what is below the file has had those of the last */
	uint64_t blocks = st.st_size / BLOCK, ops = 0;
	struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
	if (io_uring_queue_init_params(depth, &ring, &p))
		die("io_uring_queue_init");
	char *mem;
	if (posix_memalign((void **)&mem, BLOCK, (size_t)depth * BLOCK))
		die("posix_memalign");
	int *free_list = malloc(sizeof(int) * depth), n_free = depth;
	for (int i = 0; i < depth; i++)
		free_list[i] = i;
	int64_t began = ready();
	while (clock_ns(CLOCK_MONOTONIC) - began < length) {
		while (n_free > 0) {
			int i = free_list[--n_free];
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
			io_uring_prep_read(sqe, fd, mem + (size_t)i * BLOCK, BLOCK, next() % blocks * BLOCK);
			io_uring_sqe_set_data64(sqe, i);
		}
		if (io_uring_submit_and_wait(&ring, batch) < 0)
			die("io_uring_submit_and_wait");
		struct io_uring_cqe *cqe;
		unsigned head, seen = 0;
		io_uring_for_each_cqe(&ring, head, cqe) {
			if (cqe->res != BLOCK) {
				fprintf(stderr, "read: %d\n", cqe->res);
				return 1;
			}
			free_list[n_free++] = (int)cqe->user_data;
			seen++;
		}
		io_uring_cq_advance(&ring, seen);
		ops += seen;
	}
	result("Random", ops, done(began), ops * (double)BLOCK / 1e6, NULL, 0);
	return 0;
}
