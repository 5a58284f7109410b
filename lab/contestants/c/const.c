/* c/…: has a checksum and a hash by the compiler, or makes them at its start. It prints the ns that it took to have them, and both. const
 * -DCOMPUTED: all is made at the start. -DCHECKED: what the compiler made is checked at the start. Neither: it is only compared with what is stored. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLYNOMIAL 0xedb88320u /* of CRC-32, reflected */
#define TEXT_BASE 0x60u		   /* where U-Boot's SPL begins on a sun8i */

static volatile uint32_t text_base = TEXT_BASE;

/* What the start is held to, which a board has burnt in: read from memory, so that the compiler does not know it. */
static const volatile uint8_t stored[32] = {
	0xbb, 0x9c, 0xfa, 0x42, 0xe1, 0xce, 0x86, 0x9e, 0x6b, 0xaa, 0x86, 0x9f, 0xfb, 0xc2, 0xcc, 0x17,
	0x9d, 0xc1, 0x3b, 0xcd, 0x77, 0x97, 0xd6, 0xe2, 0x7f, 0x2f, 0xac, 0xfd, 0x75, 0x72, 0x3a, 0xcb,
};

#ifndef COMPUTED
/* One bit, then two, four and eight: each macro has its argument twice. C has no functions that the compiler must evaluate. */
#define S1(c) ((uint32_t)(c) >> 1 ^ (POLYNOMIAL & -((uint32_t)(c)&1)))
#define S2(c) S1(S1(c))
#define S4(c) S2(S2(c))
#define S8(c) S4(S4(c))

/* The checksum, a byte a step: an enumerator has the one before as a number, so that nothing is expanded twice. */
enum {
	C0 = 0xffffffffu,
	C1 = S8(C0 ^ 'u'), C2 = S8(C1 ^ 'b'), C3 = S8(C2 ^ 'o'), C4 = S8(C3 ^ 'o'), C5 = S8(C4 ^ 't'), C6 = S8(C5 ^ '-'),
	C7 = S8(C6 ^ 's'), C8 = S8(C7 ^ 'p'), C9 = S8(C8 ^ 'l'), C10 = S8(C9 ^ '-'), C11 = S8(C10 ^ 'v'), C12 = S8(C11 ^ '2'),
	C13 = S8(C12 ^ '0'), C14 = S8(C13 ^ '2'), C15 = S8(C14 ^ '4'), C16 = S8(C15 ^ '.'), C17 = S8(C16 ^ '0'), C18 = S8(C17 ^ '7'),
	C19 = S8(C18 ^ '-'), C20 = S8(C19 ^ 'a'), C21 = S8(C20 ^ 'r'), C22 = S8(C21 ^ 'm'), C23 = S8(C22 ^ '6'), C24 = S8(C23 ^ '4'),
};
#define CRC ((uint32_t)~C24)
#endif

#ifdef CHECKED
#define T4(n) S8(n), S8((n) + 1), S8((n) + 2), S8((n) + 3)
#define T16(n) T4(n), T4((n) + 4), T4((n) + 8), T4((n) + 12)
#define T64(n) T16(n), T16((n) + 16), T16((n) + 32), T16((n) + 48)
static const uint32_t table[256] = {T64(0), T64(64), T64(128), T64(192)};
#endif

#ifdef COMPUTED
static uint32_t table[256];

static void make_table(uint32_t polynomial) {
	for (uint32_t n = 0; n < 256; n++) {
		uint32_t c = n;
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (polynomial & -(c & 1));
		table[n] = c;
	}
}
#endif

#if defined(COMPUTED) || defined(CHECKED)
static const char version[] = "uboot-spl-v2024.07-arm64";

static uint32_t checksum(const char *p, size_t n) {
	uint32_t c = 0xffffffff;
	while (n--)
		c = c >> 8 ^ table[(uint8_t)(c ^ *p++)];
	return ~c;
}

static const uint32_t k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* sha256 is of two words, a block of their own (FIPS 180-4, 6.2). */
static void sha256(uint32_t a, uint32_t b, uint8_t out[32]) {
	uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, s[8], w[64] = {a, b, 1u << 31};
	w[15] = 64;
	for (int i = 16; i < 64; i++) {
		uint32_t x = w[i - 15], y = w[i - 2];
		w[i] = w[i - 16] + w[i - 7] + (rotated(x, 7) ^ rotated(x, 18) ^ x >> 3) + (rotated(y, 17) ^ rotated(y, 19) ^ y >> 10);
	}
	memcpy(s, h, sizeof s);
	for (int i = 0; i < 64; i++) {
		uint32_t e = s[4], one = s[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
		uint32_t two = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
		memmove(s + 1, s, 7 * sizeof *s);
		s[4] += one;
		s[0] = one + two;
	}
	for (int i = 0; i < 32; i++)
		out[i] = (h[i / 4] + s[i / 4]) >> (24 - 8 * (i % 4));
}
#endif

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(void) {
	now(); /* finds the function, which the linker has left to the first call */
	int64_t began = now();
	int wrong = 0;
#ifdef COMPUTED
	volatile uint32_t polynomial = POLYNOMIAL;
	make_table(polynomial);
	uint32_t crc = checksum(version, sizeof version - 1);
#else
	uint32_t crc = CRC;
#endif
#ifdef CHECKED
	wrong |= checksum(version, sizeof version - 1) != crc;
#endif
#if defined(COMPUTED) || defined(CHECKED)
	uint8_t hash[32];
	sha256(crc, text_base, hash);
#else
	static const uint8_t hash[32] = { /* no macro makes it: it was made before */
		0xbb, 0x9c, 0xfa, 0x42, 0xe1, 0xce, 0x86, 0x9e, 0x6b, 0xaa, 0x86, 0x9f, 0xfb, 0xc2, 0xcc, 0x17,
		0x9d, 0xc1, 0x3b, 0xcd, 0x77, 0x97, 0xd6, 0xe2, 0x7f, 0x2f, 0xac, 0xfd, 0x75, 0x72, 0x3a, 0xcb,
	};
	wrong |= text_base != TEXT_BASE;
#endif
	for (int i = 0; i < 32; i++)
		wrong |= hash[i] != stored[i];
	int64_t took = now() - began;
	if (wrong) {
		fputs("the constants are not what is stored\n", stderr);
		return 1;
	}
	printf("%lld %08x ", (long long)took, crc);
	for (int i = 0; i < 32; i++)
		printf("%02x", hash[i]);
	puts("");
	return fflush(stdout) != 0;
}
