//go:build !arm || arm.7

package ring

// sharable says that an atomic access to 64 bits is one for other processes, too.
const sharable = true
