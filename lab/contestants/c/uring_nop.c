/* c/liburing: operations that do nothing, depth in one call. uring_nop nop-ring depth=N seconds=S */
#define _GNU_SOURCE
#include "protocol.h"
#include <liburing.h>

int main(int argc, char **argv) {
	int depth = atoi(param(argc, argv, "depth"));
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	struct io_uring ring;
	struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
	if (depth < 1)
		return 2;
	if (io_uring_queue_init_params(depth, &ring, &p))
		die("io_uring_queue_init");
	if (io_uring_register_ring_fd(&ring) < 0)
		die("io_uring_register_ring_fd");
	uint64_t ops = 0;
	int64_t began = ready();
	do {
		for (int k = 0; k < 64; k++) {
			for (int i = 0; i < depth; i++) {
				struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
				io_uring_prep_nop(sqe);
				io_uring_sqe_set_data64(sqe, i);
			}
			if (io_uring_submit_and_wait(&ring, depth) < 0)
				die("io_uring_submit_and_wait");
			struct io_uring_cqe *cqe;
			unsigned head, seen = 0;
			io_uring_for_each_cqe(&ring, head, cqe) {
				if (cqe->res || cqe->user_data >= (unsigned)depth)
					return 1;
				seen++;
			}
			io_uring_cq_advance(&ring, seen);
			ops += seen;
		}
	} while (clock_ns(CLOCK_MONOTONIC) - began < length);
	result("Nop", ops, done(began), 0, NULL, 0);
	return 0;
}
