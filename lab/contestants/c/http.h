/* What the HTTP servers in C share. They serve at addr=HOST:PORT until they are killed, with a thread for each CPU and a listening socket
 * for each thread. They answer every head that ends, and look at nothing in it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char answer[] = "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
#define ANSWER (sizeof answer - 1)
#define BATCH 64 /* answers that are sent together at most */
#define MOST_FDS 65536

static struct sockaddr_in serve_at;

static void die(const char *what) {
	perror(what);
	exit(1);
}

/* heads counts the heads that end in b; state is how much of the end has been seen. */
__attribute__((unused)) static unsigned heads(const char *b, int n, unsigned char *state) {
	unsigned ended = 0;
	unsigned char s = *state;
	for (int i = 0; i < n; i++) {
		if (b[i] == '\r')
			s = s == 2 ? 3 : 1;
		else if (b[i] == '\n')
			s = s == 1 ? 2 : s == 3 ? (ended++, 0) : 0;
		else
			s = 0;
	}
	*state = s;
	return ended;
}

static int listen_here(int flags) {
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
	if (l < 0)
		die("socket");
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	setsockopt(l, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	setsockopt(l, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (bind(l, (struct sockaddr *)&serve_at, sizeof serve_at) || listen(l, 4096))
		die("listen");
	return l;
}

/* serve runs loop on a thread for each CPU. */
static void serve(int argc, char **argv, void *(*loop)(void *)) {
	char host[64] = "";
	int port = 0;
	for (int i = 2; i < argc; i++)
		if (!strncmp(argv[i], "addr=", 5))
			sscanf(argv[i] + 5, "%63[^:]:%d", host, &port);
	serve_at.sin_family = AF_INET;
	serve_at.sin_port = htons(port);
	if (inet_pton(AF_INET, host, &serve_at.sin_addr) != 1) {
		fprintf(stderr, "no parameter addr=HOST:PORT\n");
		exit(1);
	}
	signal(SIGPIPE, SIG_IGN);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t t;
	for (long i = 1; i < cpus; i++)
		if (pthread_create(&t, NULL, loop, NULL))
			die("thread");
	loop(NULL);
}
