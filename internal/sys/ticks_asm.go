//go:build amd64 || arm64

package sys

// Ticks is the processor's own counter of time: the TSC, or CNTVCT_EL0. What a tick is has to be
// found out by holding it to a clock.
func Ticks() uint64
