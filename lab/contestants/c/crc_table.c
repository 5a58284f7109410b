/* c/table: CRC-16/MODBUS by the table of 256 that most devices and libraries use. crc_table crc bytes=N seconds=S */
#include "protocol.h"

static uint16_t table[256];

int main(int argc, char **argv) {
	int size = atoi(param(argc, argv, "bytes"));
	int64_t length = (int64_t)(atof(param(argc, argv, "seconds")) * 1e9);
	if (size < 1)
		return 2;
	uint8_t *b = malloc(size);
	for (int i = 0; i < size; i++)
		b[i] = i * 7;
	for (int i = 0; i < 256; i++) {
		uint16_t c = i;
		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xA001 : c >> 1;
		table[i] = c;
	}
	uint64_t ops = 0;
	int64_t began = ready();
	do {
		for (int k = 0; k < 256; k++, ops++) {
			uint16_t c = 0xFFFF;
			for (int i = 0; i < size; i++)
				c = c >> 8 ^ table[(c ^ b[i]) & 0xFF];
			__asm__ volatile("" : : "r"(c) : "memory"); /* it must be worked out anew each time */
		}
	} while (clock_ns(CLOCK_MONOTONIC) - began < length);
	result("Crc", ops, done(began), ops * (double)size / 1e6, NULL, 0);
	return 0;
}
