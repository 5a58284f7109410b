package uring

import (
	"errors"
	"fmt"
)

// Errors that callers act on. Each is wrapped with what happened to what.
var (
	// ErrNotSupported: this kernel lacks it. A [FeatureError] says which kernel has it.
	ErrNotSupported = errors.New("not supported by this kernel")
	// ErrForbidden: the kernel may have it and this process may not use it: a container's seccomp
	// filter, the sysctl kernel.io_uring_disabled, or a security module.
	ErrForbidden = errors.New("forbidden to this process")

	// ErrFull: no room in the submission queue, or as many operations are in flight as the ring may
	// hold. Nothing was queued: reap completions, then push again.
	ErrFull = errors.New("the ring is full")
	// ErrTooLong: a chain has more operations than the ring can ever take at a time. Nothing was
	// queued: make a larger ring, or several chains.
	ErrTooLong = errors.New("longer than the ring")
	// ErrBusy: the operation, its buffer or its file is in the kernel's hands. Nothing was queued.
	ErrBusy = errors.New("in flight")
	// ErrTimeout: the time given to a wait passed first. What was queued has been submitted.
	ErrTimeout = errors.New("timed out")
	// ErrOwner: a ring made with Config.Locked was used from another thread than the one that made
	// it, or that thread is gone.
	ErrOwner = errors.New("used outside the thread that owns the ring")
	// ErrStray: a completion arrived that belongs to no operation in flight. It is a bug, of this
	// package, the caller or the kernel: stop using the ring.
	ErrStray = errors.New("completion of no known operation")
	// ErrUnreaped: the ring was closed before every completion had been seen.
	ErrUnreaped = errors.New("operations were not waited for")
	// ErrIdle: a wait for completions while nothing is in flight.
	ErrIdle = errors.New("nothing is in flight")
	// ErrClosed: the ring, file or buffer was closed.
	ErrClosed = errors.New("closed")
)

// FeatureError says that something cannot be used here, and why. It unwraps to [ErrNotSupported] or
// [ErrForbidden].
type FeatureError struct {
	Feature string // what: "io_uring", "operation futex_wait" …
	Since   string // first kernel version that has it, like "6.7"; for ErrNotSupported
	Why     string // for ErrForbidden: what forbids it
	Err     error
}

// Error is one line with what to do.
func (e *FeatureError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("%s: %v: %s", e.Feature, e.Err, e.Why)
	}
	return fmt.Sprintf("%s: %v; Linux %s or later has it", e.Feature, e.Err, e.Since)
}

// Unwrap returns the kind of the error.
func (e *FeatureError) Unwrap() error { return e.Err }

func notSupported(feature, since string) error {
	return &FeatureError{Feature: feature, Since: since, Err: ErrNotSupported}
}
