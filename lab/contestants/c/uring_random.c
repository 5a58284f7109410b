/* c/liburing: random reads of 4 KiB past the page cache, DEPTH in flight, submitted and reaped BATCH at a time, by one thread.
   uring_random PATH DEPTH BATCH SECONDS; it prints "ops N". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { BLOCK = 4096 };

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) { /* xorshift64 */
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
	perror(what);
	exit(1);
}

int main(int argc, char **argv) {
	if (argc != 5)
		return 2;
	int depth = atoi(argv[2]), batch = atoi(argv[3]), fd = open(argv[1], O_RDONLY | O_DIRECT);
	double seconds = atof(argv[4]);
	struct stat st;
	struct io_uring ring;
	if (fd < 0 || fstat(fd, &st))
		die(argv[1]);
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
	for (double end = now() + seconds; now() < end;) {
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
	printf("ops %llu\n", (unsigned long long)ops);
	return 0;
}
