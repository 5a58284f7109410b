/* c/epoll: what a careful C program does to read serial ports: one thread, one epoll, one read an event, frames taken
   where they lie. It checks no CRC. Protocol of contestants: print "ready", read until stdin ends, print "frames N". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

enum { FRAME = 128, ROOM = 65536 };

struct port {
	int fd;
	size_t have;
	uint8_t buf[ROOM + FRAME];
};

static uint64_t frames;
static uint64_t last_seq; /* keeps the compiler from leaving the frames unread */

static void take(struct port *p, size_t n) {
	size_t at = 0;
	p->have += n;
	while (p->have - at >= FRAME) {
		if (p->buf[at] == 0xA5 && p->buf[at + 1] == 0x5A) {
			memcpy(&last_seq, p->buf + at + 12, 8);
			frames++;
			at += FRAME;
		} else {
			at++;
		}
	}
	memmove(p->buf, p->buf + at, p->have - at);
	p->have -= at;
}

int main(int argc, char **argv) {
	int n = argc - 1, ep = epoll_create1(0);
	struct port *ports = calloc(n, sizeof *ports);
	for (int i = 0; i < n; i++) {
		struct termios t;
		struct epoll_event ev = {EPOLLIN, {.u32 = i}};
		ports[i].fd = open(argv[i + 1], O_RDWR | O_NOCTTY | O_NONBLOCK);
		if (ports[i].fd < 0 || tcgetattr(ports[i].fd, &t)) {
			perror(argv[i + 1]);
			return 1;
		}
		cfmakeraw(&t);
		tcsetattr(ports[i].fd, TCSANOW, &t);
		epoll_ctl(ep, EPOLL_CTL_ADD, ports[i].fd, &ev);
	}
	struct epoll_event in = {EPOLLIN, {.u32 = UINT32_MAX}};
	epoll_ctl(ep, EPOLL_CTL_ADD, 0, &in);
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct epoll_event ev[256];
		int k = epoll_wait(ep, ev, 256, -1);
		for (int i = 0; i < k; i++) {
			if (ev[i].data.u32 == UINT32_MAX) {
				printf("frames %llu\n", (unsigned long long)frames);
				return (int)(last_seq & 0);
			}
			struct port *p = &ports[ev[i].data.u32];
			ssize_t r = read(p->fd, p->buf + p->have, ROOM - p->have);
			if (r > 0)
				take(p, r);
		}
	}
}
