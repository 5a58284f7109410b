package syscalls

import (
	"errors"
	"os"
	"syscall"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// roundTrip is a ping-pong of one byte between two goroutines over a Unix socket pair of Go files:
// what a wait costs.
func roundTrip(t *contestant.Turn) error {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	a, b := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	go func() {
		one := make([]byte, 1)
		for {
			if _, err := b.Read(one); err != nil {
				return
			}
			if _, err := b.Write(one); err != nil {
				return
			}
		}
	}()
	one := make([]byte, 1)
	var failed error
	err = contestant.Repeat(t, 64, 0, func() {
		for range 64 {
			if _, err := a.Write(one); err != nil {
				failed = err
			}
			if _, err := a.Read(one); err != nil {
				failed = err
			}
		}
	})
	return errors.Join(err, failed, a.Close(), b.Close())
}
