package isolate

import (
	"errors"
	"runtime"
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// TestThreadThatKeepsTimeNow: Go may have another thread keep time than the first one. Whoever asks
// is told of that one.
func TestThreadThatKeepsTimeNow(t *testing.T) {
	k := timekeeper{cell: Cell{Priority: 1}, process: []string{"a"}, moved: make(chan struct{}, 1)}
	prepare := func() (thread int) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the thread ends
			thread = sys.ThreadID()
			k.prepare()
		}()
		<-done
		return thread
	}
	const all = 4
	threads, told, ended := []int{}, make(chan Kept), make(chan struct{})
	go func() {
		defer close(ended)
		n := 0
		k.tell(func(kept Kept) error {
			told <- kept
			if n++; n < all {
				return nil
			}
			return errors.New("the keeper has ended")
		})
	}()
	for range all {
		threads = append(threads, prepare())
		if kept := <-told; kept.Thread != threads[len(threads)-1] || kept.Lacking[0] != "a" {
			t.Errorf("threads %d have kept time, and told is %+v", threads, kept)
		}
	}
	<-ended
}
