/* Compiles only where the kernel's interface has an operation of this name. */
#include "facts.h"

#include <linux/io_uring.h>

int main(void) { answer(1, "IORING_OP_SENDFILE is %d", IORING_OP_SENDFILE); }
