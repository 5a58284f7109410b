/* What the facts have in common: each asks this machine something, once, and answers by yes or no and in words. */
#include "protocol.h"

#include <errno.h>
#include <stdarg.h>

__attribute__((unused, format(printf, 2, 3))) static void answer(int yes, const char *format, ...) {
	va_list args;
	int64_t took = done(ready());
	printf("found: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\nBenchmarkFact 1 %lld ns/op %d answer\n", (long long)took + 1, yes);
	exit(0);
}

/* unknown ends with the reason why it cannot be asked here. */
__attribute__((unused, format(printf, 1, 2))) static void unknown(const char *format, ...) {
	va_list args;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\n", stderr);
	exit(1);
}

/* number reads a file that holds a number, -1 if it cannot be read. */
__attribute__((unused)) static long number(const char *path) {
	long n = -1;
	FILE *f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = -1;
		fclose(f);
	}
	return n;
}
