//go:build !arm.7

package ring

// sharable says that an atomic access to 64 bits is one for other processes, too: ARM before
// version 7 has no instruction for it.
const sharable = false
