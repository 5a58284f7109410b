/* An HTTP server by epoll, edge-triggered: http addr=HOST:PORT */
#include "http.h"
#include <sys/epoll.h>

static void *loop(void *unused) {
	(void)unused;
	int l = listen_here(SOCK_NONBLOCK), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = l}, events[512];
	static _Thread_local char in[65536], out[BATCH * ANSWER];
	unsigned char *state = calloc(MOST_FDS, 1);
	if (ep < 0 || !state || epoll_ctl(ep, EPOLL_CTL_ADD, l, &e))
		die("epoll");
	for (int i = 0; i < BATCH; i++)
		memcpy(out + i * ANSWER, answer, ANSWER);
	for (;;) {
		int n = epoll_wait(ep, events, 512, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == l) {
				int c;
				while ((c = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
					if (c >= MOST_FDS) {
						close(c);
						continue;
					}
					state[c] = 0;
					e = (struct epoll_event){.events = EPOLLIN | EPOLLET | EPOLLRDHUP, .data.fd = c};
					epoll_ctl(ep, EPOLL_CTL_ADD, c, &e);
				}
				continue;
			}
			for (;;) {
				ssize_t got = read(fd, in, sizeof in);
				if (got == 0 || (got < 0 && errno != EAGAIN)) {
					close(fd);
					break;
				}
				if (got < 0)
					break;
				for (unsigned k = heads(in, got, &state[fd]); k > 0;) {
					unsigned now = k > BATCH ? BATCH : k;
					for (size_t at = 0, all = now * ANSWER; at < all;) {
						ssize_t put = send(fd, out + at, all - at, MSG_NOSIGNAL);
						if (put < 0 && errno != EAGAIN)
							break;
						at += put > 0 ? put : 0;
					}
					k -= now;
				}
				if (got < (ssize_t)sizeof in)
					break;
			}
		}
	}
	return NULL;
}

int main(int argc, char **argv) { serve(argc, argv, loop); }
