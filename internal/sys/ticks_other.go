//go:build !amd64 && !arm64

package sys

import "time"

var began = time.Now()

// Ticks is the monotonic clock, in ns: the processor's counter is not read here.
func Ticks() uint64 { return uint64(time.Since(began)) }
