/* An HTTP server by epoll, edge-triggered, that reads requests and their bodies: http addr=HOST:PORT bytes=OF-A-PAGE */
#include "http_parse.h"
#include <sys/epoll.h>

struct conn {
	struct request r;
	struct span out; /* what is left of an answer */
};

/* push sends as much as the socket takes; false if the connection is over. */
static int push(struct conn *c, int fd) {
	while (c->out.n > 0) {
		ssize_t put = send(fd, c->out.at, c->out.n, MSG_NOSIGNAL);
		if (put < 0)
			return errno == EAGAIN;
		c->out.at += put;
		c->out.n -= put;
		if (c->out.n == 0 && c->r.closes)
			return 0;
	}
	return 1;
}

/* take reads what has come and answers; false if the connection is over. */
static int take(struct conn *c, int fd) {
	static _Thread_local char in[65536];
	for (;;) {
		ssize_t got = read(fd, in, sizeof in);
		if (got < 0 && errno == EAGAIN)
			return 1;
		if (got <= 0)
			return 0;
		for (ssize_t at = 0; at < got;) {
			int whole;
			ssize_t used = c->out.n > 0 ? -1 : eat(&c->r, in + at, got - at, &whole);
			if (used < 0)
				return 0;
			at += used;
			if (whole) {
				c->out = answer_to(&c->r);
				if (!push(c, fd))
					return 0;
			}
		}
		if (got < (ssize_t)sizeof in)
			return 1;
	}
}

static void *loop(void *unused) {
	(void)unused;
	int l = listen_here(SOCK_NONBLOCK), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = l}, events[512];
	struct conn **conns = calloc(MOST_FDS, sizeof *conns);
	if (ep < 0 || !conns || epoll_ctl(ep, EPOLL_CTL_ADD, l, &e))
		die("epoll");
	for (;;) {
		int n = epoll_wait(ep, events, 512, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == l) {
				int f;
				while ((f = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
					if (f >= MOST_FDS || (!conns[f] && !(conns[f] = malloc(sizeof **conns)))) {
						close(f);
						continue;
					}
					memset(conns[f], 0, sizeof **conns);
					e = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, .data.fd = f};
					epoll_ctl(ep, EPOLL_CTL_ADD, f, &e);
				}
				continue;
			}
			struct conn *c = conns[fd];
			if (!push(c, fd) || ((events[i].events & ~EPOLLOUT) && !take(c, fd)))
				close(fd);
		}
	}
	return NULL;
}

int main(int argc, char **argv) {
	make_pages(number(argc, argv, "bytes"));
	serve(argc, argv, loop);
}
