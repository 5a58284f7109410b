/* An HTTP server by liburing that reads requests and their bodies: http addr=HOST:PORT bytes=OF-A-PAGE once=1
 * It has a multishot accept, a ring of buffers, and one call a turn. A receive is multishot, or with once=1 for one request: then nothing waits on
 * the socket when the answer is sent, and its end can be a link behind the answer. */
#include "http_parse.h"
#include <liburing.h>
#include <sys/mman.h>

#define BUFFERS 512
#define SIZE 32768

enum { ACCEPT = 1, RECEIVE, SEND, CLOSE };

struct conn {
	struct request r;
	char sending, receiving, over; /* over: to be closed when nothing is under way */
};

static int once;

static __u64 tag(int what, int fd) { return (__u64)what << 32 | (unsigned)fd; }

/* entries makes room for n operations that belong together. */
static void entries(struct io_uring *r, unsigned n) {
	if (io_uring_sq_space_left(r) < n)
		io_uring_submit(r);
}

static void accept_all(struct io_uring *r, int l) {
	entries(r, 1);
	struct io_uring_sqe *s = io_uring_get_sqe(r);
	io_uring_prep_multishot_accept(s, l, NULL, NULL, SOCK_CLOEXEC);
	io_uring_sqe_set_data64(s, tag(ACCEPT, l));
}

static void receive(struct io_uring *r, struct conn *c, int fd) {
	entries(r, 1);
	struct io_uring_sqe *s = io_uring_get_sqe(r);
	if (once)
		io_uring_prep_recv(s, fd, NULL, SIZE, 0);
	else
		io_uring_prep_recv_multishot(s, fd, NULL, 0, 0);
	s->flags |= IOSQE_BUFFER_SELECT;
	s->buf_group = 1;
	io_uring_sqe_set_data64(s, tag(RECEIVE, fd));
	c->receiving = 1;
}

static void send_answer(struct io_uring *r, struct conn *c, int fd) {
	struct span out = answer_to(&c->r);
	int linked = c->r.closes && !c->receiving;
	entries(r, 2);
	struct io_uring_sqe *s = io_uring_get_sqe(r);
	io_uring_prep_send(s, fd, out.at, out.n, MSG_NOSIGNAL | MSG_WAITALL);
	io_uring_sqe_set_data64(s, tag(SEND, fd));
	c->sending = 1;
	if (linked) {
		s->flags |= IOSQE_IO_LINK;
		s = io_uring_get_sqe(r);
		io_uring_prep_close(s, fd);
		io_uring_sqe_set_data64(s, tag(CLOSE, fd));
		c->over = 2; /* the link closes it */
	}
}

/* settle closes a connection that is over once nothing is under way on it. */
static void settle(struct conn *c, int fd) {
	if (c->over == 1 && !c->sending && !c->receiving) {
		c->over = 2;
		close(fd);
	}
}

/* give_up makes the kernel end what is under way. */
static void give_up(struct conn *c, int fd) {
	if (!c->over) {
		c->over = 1;
		shutdown(fd, SHUT_RDWR);
	}
}

static void take(struct io_uring *r, struct conn *c, int fd, const char *b, ssize_t n) {
	while (n > 0 && !c->over) {
		int whole;
		ssize_t used = c->sending ? -1 : eat(&c->r, b, n, &whole);
		if (used < 0) {
			give_up(c, fd);
			return;
		}
		b += used;
		n -= used;
		if (whole)
			send_answer(r, c, fd);
	}
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
	struct conn **conns = calloc(MOST_FDS, sizeof *conns);
	if (br == MAP_FAILED || bufs == MAP_FAILED || !conns || io_uring_register_buf_ring(&r, &reg, 0))
		die("buffers");
	io_uring_buf_ring_init(br);
	for (int i = 0; i < BUFFERS; i++)
		io_uring_buf_ring_add(br, bufs + i * SIZE, SIZE, i, io_uring_buf_ring_mask(BUFFERS), i);
	io_uring_buf_ring_advance(br, BUFFERS);
	int l = listen_here(0);
	accept_all(&r, l);
	for (;;) {
		io_uring_submit_and_wait(&r, 1);
		struct io_uring_cqe *c;
		unsigned head, seen = 0;
		io_uring_for_each_cqe(&r, head, c) {
			seen++;
			int what = c->user_data >> 32, fd = (int)c->user_data;
			struct conn *cn = conns[fd];
			switch (what) {
			case ACCEPT:
				if (!(c->flags & IORING_CQE_F_MORE))
					accept_all(&r, l);
				if ((fd = c->res) < 0)
					break;
				if (fd >= MOST_FDS || (!conns[fd] && !(conns[fd] = malloc(sizeof **conns)))) {
					close(fd);
					break;
				}
				memset(conns[fd], 0, sizeof **conns);
				receive(&r, conns[fd], fd);
				break;
			case RECEIVE:
				cn->receiving = (c->flags & IORING_CQE_F_MORE) != 0;
				if (c->res > 0) {
					int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
					take(&r, cn, fd, bufs + id * SIZE, c->res);
					io_uring_buf_ring_add(br, bufs + id * SIZE, SIZE, id, io_uring_buf_ring_mask(BUFFERS), 0);
					io_uring_buf_ring_advance(br, 1);
				} else if (c->res != -ENOBUFS && !cn->over) {
					cn->over = 1;
				}
				if (!cn->receiving && !cn->over && !(once && cn->sending))
					receive(&r, cn, fd);
				settle(cn, fd);
				break;
			case SEND:
				cn->sending = 0;
				if (cn->over == 2)
					break;
				if (c->res < 0)
					give_up(cn, fd);
				else if (cn->r.closes)
					shutdown(fd, SHUT_WR); /* the client's end comes by the receive */
				else if (!cn->receiving && !cn->over)
					receive(&r, cn, fd);
				settle(cn, fd);
				break;
			case CLOSE:
				if (c->res == -ECANCELED) /* the answer could not be sent */
					close(fd);
			}
		}
		io_uring_cq_advance(&r, seen);
	}
	return NULL;
}

int main(int argc, char **argv) {
	once = number(argc, argv, "once") > 0;
	make_pages(number(argc, argv, "bytes"));
	serve(argc, argv, loop);
}
