package uringnop

import (
	"errors"
	"runtime"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

// nopRing does operations that do nothing, depth of them in one call.
func nopRing(t *contestant.Turn) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	depth := t.Int("depth", 64)
	r, err := uring.New(uring.Config{Entries: depth, Locked: true, RegisterRing: true})
	if err != nil {
		return err
	}
	ops := make([]uring.Op, depth)
	const rounds = 64
	var failed error
	err = contestant.Repeat(t, rounds*depth, 0, func() {
		for range rounds {
			for i := range ops {
				if err := r.Push(&ops[i]); err != nil {
					failed = err
				}
			}
			if err := r.Wait(depth); err != nil {
				failed = err
			}
			for r.Next() != nil {
			}
		}
	})
	return errors.Join(err, failed, r.Close())
}
