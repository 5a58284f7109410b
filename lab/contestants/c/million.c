/* c/direct: serves connections as direct descriptors, 18,000 a ring and thread. million million addr=A:PORT spread=N connections=N */
#define _GNU_SOURCE
#include "protocol.h"
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { PER_RING = 18000, BUFFERS = 1024, SIZE = 1024, ACCEPT = 1, RECV = 2, OTHER = 3 };

static const char answer[] = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

struct shard {
	struct io_uring ring;
	int fds[64];
	int listeners;
};

static struct io_uring_sqe *next(struct io_uring *r, uint64_t what, int fd) {
	struct io_uring_sqe *s;
	while (!(s = io_uring_get_sqe(r)))
		io_uring_submit(r);
	s->user_data = what << 32 | (unsigned)fd; /* what the caller fills in leaves it */
	return s;
}

static void tag(struct io_uring_sqe *s, uint64_t what, int fd) { s->user_data = what << 32 | (unsigned)fd; }

static void accept_from(struct io_uring *r, int fd) {
	struct io_uring_sqe *s = next(r, ACCEPT, fd);
	io_uring_prep_multishot_accept_direct(s, fd, NULL, NULL, 0);
	tag(s, ACCEPT, fd);
}

static void receive_from(struct io_uring *r, int slot) {
	struct io_uring_sqe *s = next(r, RECV, slot);
	io_uring_prep_recv_multishot(s, slot, NULL, 0, 0);
	s->flags |= IOSQE_BUFFER_SELECT | IOSQE_FIXED_FILE;
	s->buf_group = 1;
	tag(s, RECV, slot);
}

static void *serve(void *arg) {
	struct shard *d = arg;
	struct io_uring *r = &d->ring;
	struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = 32768};
	int err;
	if ((err = -io_uring_queue_init_params(1024, r, &p)) || (err = -io_uring_register_files_sparse(r, PER_RING + 1000))) {
		errno = err;
		die("io_uring");
	}
	const int prot = PROT_READ | PROT_WRITE, how = MAP_ANONYMOUS | MAP_PRIVATE;
	struct io_uring_buf_ring *stock = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), prot, how, -1, 0);
	char *memory = mmap(NULL, BUFFERS * SIZE, prot, how, -1, 0);
	struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)stock, .ring_entries = BUFFERS, .bgid = 1};
	if (stock == MAP_FAILED || memory == MAP_FAILED || io_uring_register_buf_ring(r, &reg, 0))
		die("buffers");
	io_uring_buf_ring_init(stock);
	for (int i = 0; i < BUFFERS; i++)
		io_uring_buf_ring_add(stock, memory + i * SIZE, SIZE, i, BUFFERS - 1, i);
	io_uring_buf_ring_advance(stock, BUFFERS);
	for (int i = 0; i < d->listeners; i++)
		accept_from(r, d->fds[i]);
	for (;;) {
		io_uring_submit_and_wait(r, 1);
		struct io_uring_cqe *c;
		unsigned head, n = 0;
		io_uring_for_each_cqe(r, head, c) {
			n++;
			int fd = (int)c->user_data, more = c->flags & IORING_CQE_F_MORE;
			struct io_uring_sqe *s;
			switch (c->user_data >> 32) {
			case ACCEPT:
				if (c->res >= 0)
					receive_from(r, c->res);
				if (!more)
					accept_from(r, fd);
				break;
			case RECV:
				if (c->flags & IORING_CQE_F_BUFFER) {
					int b = c->flags >> IORING_CQE_BUFFER_SHIFT;
					io_uring_buf_ring_add(stock, memory + b * SIZE, SIZE, b, BUFFERS - 1, 0);
					io_uring_buf_ring_advance(stock, 1);
				}
				if (c->res > 0) {
					s = next(r, OTHER, fd);
					io_uring_prep_send(s, fd, answer, sizeof answer - 1, 0);
					s->flags |= IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS;
					tag(s, OTHER, fd);
				} else if (c->res != -ENOBUFS) {
					s = next(r, OTHER, fd);
					io_uring_prep_close_direct(s, fd);
					tag(s, OTHER, fd);
					break;
				}
				if (!more)
					receive_from(r, fd);
			}
		}
		io_uring_cq_advance(r, n);
	}
	return NULL;
}

int main(int argc, char **argv) {
	char addr[64];
	snprintf(addr, sizeof addr, "%s", param(argc, argv, "addr"));
	char *colon = strrchr(addr, ':');
	int spread = atoi(param(argc, argv, "spread")), connections = atoi(param(argc, argv, "connections"));
	if (!colon || spread < 1)
		return 2;
	*colon = 0;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
	uint32_t first = ntohl(inet_addr(addr));
	int rings = (connections + PER_RING - 1) / PER_RING, on = 1;
	struct shard *all = calloc(rings ? rings : 1, sizeof *all);
	for (int i = 0; i < spread; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		a.sin_addr.s_addr = htonl(first + i);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		if (bind(fd, (void *)&a, sizeof a) || listen(fd, 4096))
			die("listen");
		struct shard *d = &all[i % rings];
		if (d->listeners == 64)
			return 2;
		d->fds[d->listeners++] = fd;
	}
	pthread_t t;
	for (int i = 0; i < rings; i++)
		if (pthread_create(&t, NULL, serve, &all[i]))
			die("pthread_create");
	pause();
	return 0;
}
