/* What the servers in C share that read requests: the method, Content-Length and Connection of a head, and the body to its end. GET is answered by
 * page=BYTES of the laboratory's pattern, or "Hello, World!" without; POST by the length and the sum of its body, as package contestant has them.
 * No chunked bodies and no pipelining: such a connection is closed. */
#include "http.h"
#include <stdint.h>
#include <strings.h>

#define HEAD 2048 /* of a request, at most */
#define PERIOD 65521
#define STRIDE 512

struct span {
	char *at;
	size_t n;
};
static struct span pages[2]; /* the answer to GET: the connection goes on, or ends */

struct request {
	char head[HEAD];
	unsigned have;  /* bytes of a head that is not whole */
	uint64_t left;  /* of the body */
	uint64_t bytes; /* of the body so far */
	uint32_t sum;
	char in_body, post, closes; /* closes: the client asks for the end of the connection */
	char text[256];             /* the answer to POST */
};

static void make_pages(size_t n) {
	char *page = malloc(n > 0 ? n : 16);
	uint64_t x = 88172645463325252u;
	if (!page)
		die("memory");
	for (size_t i = 0; i < n && i < PERIOD; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		page[i] = (char)(x >> 32);
	}
	for (size_t i = PERIOD; i < n; i++)
		page[i] = page[i - PERIOD];
	if (n == 0)
		memcpy(page, "Hello, World!", n = 13);
	for (int closes = 0; closes < 2; closes++) {
		char *b = malloc(n + 256);
		if (!b)
			die("memory");
		int h = sprintf(b, "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n%s\r\n", n, closes ? "Connection: close\r\n" : "");
		memcpy(b + h, page, n);
		pages[closes] = (struct span){b, h + n};
	}
	free(page);
}

static void eat_body(struct request *r, const char *b, size_t n) {
	for (size_t i = (STRIDE - r->bytes % STRIDE) % STRIDE; i < n; i += STRIDE)
		r->sum = r->sum * 31 + (unsigned char)b[i];
	r->bytes += n;
	r->left -= n;
}

/* read_head reads a head that is whole; false if it is one that this server does not answer. */
static int read_head(struct request *r, const char *h, const char *end) {
	r->left = r->bytes = r->sum = 0;
	r->closes = 0;
	r->post = !strncmp(h, "POST ", 5);
	if (!r->post && strncmp(h, "GET ", 4))
		return 0;
	for (const char *line = memchr(h, '\n', end - h); line && ++line < end; line = memchr(line, '\n', end - line)) {
		if (!strncasecmp(line, "content-length:", 15))
			r->left = strtoull(line + 15, NULL, 10);
		else if (!strncasecmp(line, "connection:", 11))
			r->closes = !strncasecmp(line + 11 + strspn(line + 11, " "), "close\r", 6);
		else if (!strncasecmp(line, "transfer-encoding:", 18))
			return 0;
	}
	return 1;
}

/* eat takes n bytes that have come and returns how many it used: all of them, or those up to the end of a request, which *whole says. It is
 * negative if the connection is to be closed. */
static ssize_t eat(struct request *r, const char *b, size_t n, int *whole) {
	size_t used = 0;
	*whole = 0;
	if (!r->in_body) {
		const char *h = b, *end;
		size_t all = n;
		if (r->have) { /* the head came in pieces */
			size_t more = n < HEAD - r->have ? n : HEAD - r->have;
			memcpy(r->head + r->have, b, more);
			h = r->head;
			all = r->have + more;
		}
		end = memmem(h, all, "\r\n\r\n", 4);
		if (!end) {
			if (all >= HEAD)
				return -1;
			if (!r->have)
				memcpy(r->head, b, n);
			r->have = all;
			return n;
		}
		used = end + 4 - h - r->have;
		r->have = 0;
		if (!read_head(r, h, end + 2))
			return -1;
		r->in_body = 1;
	}
	size_t body = n - used < r->left ? n - used : r->left;
	eat_body(r, b + used, body);
	if (r->left == 0) {
		r->in_body = 0;
		*whole = 1;
	}
	return used + body;
}

static char *append(char *to, const char *text) {
	size_t n = strlen(text);
	memcpy(to, text, n);
	return to + n;
}

static char *append_number(char *to, unsigned long long x) {
	char digits[20];
	int n = 0;
	do
		digits[n++] = '0' + x % 10;
	while (x /= 10);
	while (n > 0)
		*to++ = digits[--n];
	return to;
}

/* answer_to is what to send. It is valid until the next request has been answered. As those in Go, it formats nothing. */
static struct span answer_to(struct request *r) {
	if (!r->post)
		return pages[(int)r->closes];
	char sum[64], *end = append(append_number(sum, r->bytes), " bytes, sum ");
	for (int shift = 28; shift >= 0; shift -= 4)
		*end++ = "0123456789abcdef"[r->sum >> shift & 15];
	*end++ = '\n';
	char *to = append(r->text, "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: ");
	to = append(append_number(to, end - sum), r->closes ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
	memcpy(to, sum, end - sum);
	return (struct span){r->text, to + (end - sum) - r->text};
}

static size_t number(int argc, char **argv, const char *key) {
	size_t n = strlen(key);
	for (int i = 2; i < argc; i++)
		if (!strncmp(argv[i], key, n) && argv[i][n] == '=')
			return strtoull(argv[i] + n + 1, NULL, 10);
	return 0;
}
