//go:build !linux

package rt

import (
	"errors"
	"time"
)

// Affinity is Linux only.
func Affinity(int) (CPUs, error) { return nil, errors.ErrUnsupported }

// SetAffinity is Linux only.
func SetAffinity(int, CPUs) error { return errors.ErrUnsupported }

// Pin is Linux only.
func Pin(CPUs) (func() error, error) { return nil, errors.ErrUnsupported }

// SetProcessAffinity is Linux only.
func SetProcessAffinity(int, CPUs) error { return errors.ErrUnsupported }

// SetScheduling is Linux only.
func SetScheduling(s Scheduling) error {
	if err := s.check(); err != nil {
		return err
	}
	return errors.ErrUnsupported
}

// GetScheduling is Linux only.
func GetScheduling(int) (Scheduling, error) { return Scheduling{}, errors.ErrUnsupported }

// TryScheduling is Linux only.
func TryScheduling(s Scheduling) error { return SetScheduling(s) }

// LockMemory is Linux only.
func LockMemory() error { return errors.ErrUnsupported }

// UnlockMemory is Linux only.
func UnlockMemory() error { return errors.ErrUnsupported }

// TryLockMemory is Linux only.
func TryLockMemory(int) error { return errors.ErrUnsupported }

// SetTimerSlack is Linux only.
func SetTimerSlack(time.Duration) error { return errors.ErrUnsupported }

// TimerSlack is Linux only.
func TimerSlack() (time.Duration, error) { return 0, errors.ErrUnsupported }

var began = time.Now()

// Now is a monotonic clock that begins with the program.
func Now() time.Duration { return time.Since(began) }

// SleepUntil is by package time here.
func SleepUntil(at time.Duration) error {
	time.Sleep(at - Now())
	return nil
}

// SleepUntilHolding is SleepUntil here.
func SleepUntilHolding(at time.Duration) error { return SleepUntil(at) }
