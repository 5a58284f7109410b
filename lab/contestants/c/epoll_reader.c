/* c/epoll: what a careful C program does to read serial ports: one thread, one epoll, one read an event, frames taken where they lie. It
   checks no CRC. epoll_reader serial paths=A,B,… */
#define _GNU_SOURCE
#include "protocol.h"
#include <sys/epoll.h>
#include <termios.h>

enum { FRAME = 128, AT_TIME = 20, AT_CRC = 126, ROOM = 65536, KEEP = 1 << 20 };

struct port {
	int fd;
	size_t have;
	uint8_t buf[ROOM + FRAME];
};

static uint64_t frames;
static int64_t latency[KEEP];
static int64_t longest; /* of all */
static size_t kept;     /* of those in latency, each with a chance of 1 in every */
static uint64_t every = 1;

/* whole says whether a frame has its CRC-16/MODBUS. */
static int whole(const uint8_t *frame) {
	uint16_t crc = 0xFFFF;
	for (int i = 0; i < AT_CRC; i++) {
		crc ^= frame[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xA001 : crc >> 1;
	}
	return frame[AT_CRC] == (crc & 0xFF) && frame[AT_CRC + 1] == crc >> 8;
}

static uint64_t chance(void) { /* Marsaglia's xorshift */
	static uint64_t x = 88172645463325252;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x >> 11;
}

/* count keeps a latency. The time of a damaged frame is none: one that would be the longest is looked at. */
static void count(int64_t late, const uint8_t *frame) {
	if (late > longest || late < 0) {
		if (!whole(frame))
			return;
		if (late > longest)
			longest = late;
	}
	if (every > 1 && chance() % every)
		return;
	latency[kept++] = late;
	if (kept == KEEP) {
		kept = 0;
		for (size_t i = 0; i < KEEP; i++)
			if (chance() % 2)
				latency[kept++] = latency[i];
		every *= 2;
	}
}

static void take(struct port *p, size_t n) {
	size_t at = 0;
	uint64_t now = clock_ns(CLOCK_REALTIME), due;
	p->have += n;
	while (p->have - at >= FRAME) {
		if (p->buf[at] != 0xA5 || p->buf[at + 1] != 0x5A) {
			at++;
			continue;
		}
		memcpy(&due, p->buf + at + AT_TIME, 8);
		count((int64_t)(now - due), p->buf + at);
		frames++;
		at += FRAME;
	}
	memmove(p->buf, p->buf + at, p->have - at);
	p->have -= at;
}

int main(int argc, char **argv) {
	int n = 0, ep = epoll_create1(0);
	char *paths = strdup(param(argc, argv, "paths")), *save = NULL;
	struct port *ports = NULL;
	for (char *path = strtok_r(paths, ",", &save); path; path = strtok_r(NULL, ",", &save)) {
		struct termios t;
		struct epoll_event ev = {EPOLLIN, {.u32 = n}};
		ports = realloc(ports, (n + 1) * sizeof *ports);
		struct port *p = &ports[n++];
		p->have = 0;
		p->fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK);
		if (p->fd < 0 || tcgetattr(p->fd, &t))
			die(path);
		cfmakeraw(&t);
		tcsetattr(p->fd, TCSANOW, &t);
		epoll_ctl(ep, EPOLL_CTL_ADD, p->fd, &ev);
	}
	int64_t began = ready();
	struct epoll_event in = {EPOLLIN, {.u32 = UINT32_MAX}};
	epoll_ctl(ep, EPOLL_CTL_ADD, 0, &in);
	for (;;) {
		struct epoll_event ev[256];
		int k = epoll_wait(ep, ev, 256, -1);
		for (int i = 0; i < k; i++) {
			if (ev[i].data.u32 == UINT32_MAX) {
				if (kept)
					latency[0] = longest; /* which may not have been kept */
				result("Serial", frames, clock_ns(CLOCK_MONOTONIC) - began, frames * FRAME / 1e6, latency, kept);
				return 0;
			}
			struct port *p = &ports[ev[i].data.u32];
			ssize_t r = read(p->fd, p->buf + p->have, ROOM - p->have);
			if (r > 0)
				take(p, r);
		}
	}
}
