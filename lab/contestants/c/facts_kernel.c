/* Facts about settings of the kernel; ask=NAME says which. */
#define _GNU_SOURCE
#include "facts.h"

#include <arpa/inet.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Does a ring count against fs.aio-max-nr? */
static void aio_limits_rings(void) {
	long before = number("/proc/sys/fs/aio-nr"), after;
	struct io_uring_params p = {0};
	if (syscall(SYS_io_uring_setup, 4096, &p) < 0)
		die("io_uring_setup");
	after = number("/proc/sys/fs/aio-nr");
	if (before < 0 || after < 0)
		unknown("no /proc/sys/fs/aio-nr");
	answer(after >= before + 4096, "fs.aio-nr is %ld before and %ld after a ring of 4096 entries was made", before, after);
}

/* Is more than fs.aio-max-nr granted? */
static void aio_is_soft(void) {
	long most = number("/proc/sys/fs/aio-max-nr");
	aio_context_t ctx = 0;
	if (most < 0 || most > 1 << 30)
		unknown("fs.aio-max-nr is %ld", most);
	if (syscall(SYS_io_setup, most + 1, &ctx) == 0)
		answer(1, "io_setup(%ld) was granted, with fs.aio-max-nr at %ld", most + 1, most);
	answer(0, "io_setup(%ld) gives %s, with fs.aio-max-nr at %ld", most + 1, errno == EAGAIN ? "EAGAIN" : strerror(errno), most);
}

static int listener(int backlog, struct sockaddr_in *at) {
	socklen_t n = sizeof *at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) || listen(fd, backlog) || getsockname(fd, (struct sockaddr *)at, &n))
		die("listen");
	return fd;
}

/* A listener shows how long its queue may be where a connection shows how much was acknowledged apart. */
static unsigned queue_limit(int fd) {
	struct tcp_info info = {0};
	socklen_t n = sizeof info;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n))
		die("TCP_INFO");
	return info.tcpi_sacked;
}

/* overflows is how often a connection found a queue full, of the whole machine. */
static long overflows(void) {
	static char names[1 << 14], values[1 << 14];
	long n = -1;
	FILE *f = fopen("/proc/net/netstat", "r");
	while (f && fgets(names, sizeof names, f) && fgets(values, sizeof values, f)) {
		char *a, *b, *name, *value;
		for (name = strtok_r(names, " ", &a), value = strtok_r(values, " ", &b); name && value; name = strtok_r(0, " ", &a), value = strtok_r(0, " ", &b))
			if (!strcmp(name, "ListenOverflows"))
				n = atol(value);
	}
	if (f)
		fclose(f);
	return n;
}

static void somaxconn(void) {
	enum { backlog = 8, tries = 32 };
	struct sockaddr_in at;
	long most = number("/proc/sys/net/core/somaxconn");
	unsigned large = queue_limit(listener(1 << 20, &at)), small = queue_limit(listener(backlog, &at));
	long before = overflows(), after;
	for (int i = 0; i < tries; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (fd < 0 || (connect(fd, (struct sockaddr *)&at, sizeof at) && errno != EINPROGRESS))
			die("connect");
	}
	after = overflows();
	if (most < 0 || before < 0)
		unknown("no /proc/sys/net/core/somaxconn, or no count of overflows in /proc/net/netstat");
	answer(large == most && small == backlog && after > before, "listen(1048576) has a queue of %u with somaxconn %ld, listen(%d) one of %u; of %d connections that nobody accepts %ld found it full", large, most,
	       backlog, small, tries, after - before);
}

static void swappiness(void) {
	char line[128];
	long swap = -1;
	FILE *f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof line, f))
		sscanf(line, "SwapTotal: %ld", &swap);
	unknown("vm.swappiness is %ld here; what it does shows only where memory runs out, and SwapTotal is %ld kB", number("/proc/sys/vm/swappiness"), swap);
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*ask)(void);
	} all[] = {{"aio-limits-rings", aio_limits_rings}, {"aio-is-soft", aio_is_soft}, {"somaxconn", somaxconn}, {"swappiness", swappiness}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(param(argc, argv, "ask"), all[i].name))
			all[i].ask();
	unknown("ask=%s is not known", param(argc, argv, "ask"));
}
