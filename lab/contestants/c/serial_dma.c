/* Compiles only where a serial port's settings (TIOCSSERIAL, which is all that setserial has) say something of DMA. */
#include "facts.h"

#include <linux/serial.h>

int main(void) {
	struct serial_struct settings = {0};
	settings.dma = 1;
	answer(settings.dma, "struct serial_struct has a field dma");
}
