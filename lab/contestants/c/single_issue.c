/* Compiles only where the kernel's interface has a feature of this name. */
#include "facts.h"

#include <linux/io_uring.h>

int main(void) { answer(1, "IORING_FEAT_SINGLE_ISSUE is %u", IORING_FEAT_SINGLE_ISSUE); }
