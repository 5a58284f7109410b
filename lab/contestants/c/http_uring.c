/* An HTTP server by liburing: multishot accept and receive, a ring of buffers, one call a turn: http addr=HOST:PORT */
#include "http.h"
#include <liburing.h>
#include <sys/mman.h>

#define BUFFERS 4096
#define SIZE 2048

enum { ACCEPT = 1, RECEIVE, SEND };

struct conn {
	char *out;
	unsigned waiting; /* answers that are due behind those being sent */
	unsigned char state, sending;
};

static __u64 tag(int what, int fd) { return (__u64)what << 32 | (unsigned)fd; }

static struct io_uring_sqe *entry(struct io_uring *r) {
	struct io_uring_sqe *s = io_uring_get_sqe(r);
	if (!s) {
		io_uring_submit(r);
		s = io_uring_get_sqe(r);
	}
	return s;
}

static void receive(struct io_uring *r, int fd) {
	struct io_uring_sqe *s = entry(r);
	io_uring_prep_recv_multishot(s, fd, NULL, 0, 0);
	s->flags |= IOSQE_BUFFER_SELECT;
	s->buf_group = 1;
	io_uring_sqe_set_data64(s, tag(RECEIVE, fd));
}

static void send_answers(struct io_uring *r, struct conn *c, int fd) {
	unsigned k = c->waiting > BATCH ? BATCH : c->waiting;
	c->waiting -= k;
	c->sending = 1;
	struct io_uring_sqe *s = entry(r);
	io_uring_prep_send(s, fd, c->out, k * ANSWER, MSG_NOSIGNAL | MSG_WAITALL);
	io_uring_sqe_set_data64(s, tag(SEND, fd));
}

static void *loop(void *unused) {
	(void)unused;
	struct io_uring r;
	struct io_uring_params p = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL,
		.cq_entries = 16384,
	};
	if (io_uring_queue_init_params(4096, &r, &p) || io_uring_register_ring_fd(&r) < 0)
		die("io_uring");
	struct io_uring_buf_ring *br = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)br, .ring_entries = BUFFERS, .bgid = 1};
	char *bufs = mmap(NULL, BUFFERS * SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	struct conn *conns = calloc(MOST_FDS, sizeof *conns);
	if (br == MAP_FAILED || bufs == MAP_FAILED || !conns || io_uring_register_buf_ring(&r, &reg, 0))
		die("buffers");
	io_uring_buf_ring_init(br);
	for (int i = 0; i < BUFFERS; i++)
		io_uring_buf_ring_add(br, bufs + i * SIZE, SIZE, i, io_uring_buf_ring_mask(BUFFERS), i);
	io_uring_buf_ring_advance(br, BUFFERS);
	int l = listen_here(0);
	struct io_uring_sqe *first = entry(&r);
	io_uring_prep_multishot_accept(first, l, NULL, NULL, SOCK_CLOEXEC);
	io_uring_sqe_set_data64(first, tag(ACCEPT, l));
	for (;;) {
		io_uring_submit_and_wait(&r, 1);
		struct io_uring_cqe *c;
		unsigned head, seen = 0;
		int given = 0;
		io_uring_for_each_cqe(&r, head, c) {
			seen++;
			int what = c->user_data >> 32, fd = (int)c->user_data;
			struct conn *cn = &conns[what == ACCEPT && c->res >= 0 ? c->res : fd];
			switch (what) {
			case ACCEPT:
				if (c->res >= MOST_FDS) {
					close(c->res);
				} else if (c->res >= 0) {
					if (!cn->out && (cn->out = malloc(BATCH * ANSWER)))
						for (int i = 0; i < BATCH; i++)
							memcpy(cn->out + i * ANSWER, answer, ANSWER);
					cn->state = cn->sending = cn->waiting = 0;
					receive(&r, c->res);
				}
				if (!(c->flags & IORING_CQE_F_MORE)) {
					struct io_uring_sqe *s = entry(&r);
					io_uring_prep_multishot_accept(s, l, NULL, NULL, SOCK_CLOEXEC);
					io_uring_sqe_set_data64(s, tag(ACCEPT, l));
				}
				break;
			case RECEIVE:
				if (c->res > 0) {
					int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
					cn->waiting += heads(bufs + id * SIZE, c->res, &cn->state);
					io_uring_buf_ring_add(br, bufs + id * SIZE, SIZE, id, io_uring_buf_ring_mask(BUFFERS), given++);
					if (cn->waiting && !cn->sending)
						send_answers(&r, cn, fd);
					if (!(c->flags & IORING_CQE_F_MORE))
						receive(&r, fd);
				} else if (c->res == -ENOBUFS) {
					receive(&r, fd);
				} else {
					close(fd);
				}
				break;
			case SEND:
				cn->sending = 0;
				if (cn->waiting && c->res > 0)
					send_answers(&r, cn, fd);
			}
		}
		io_uring_cq_advance(&r, seen);
		io_uring_buf_ring_advance(br, given);
	}
	return NULL;
}

int main(int argc, char **argv) { serve(argc, argv, loop); }
