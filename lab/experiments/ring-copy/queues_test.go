package ringcopy

import (
	"testing"
	"time"
)

// TestQueuesAreAlike: each queue has as much room, and says when that is full, so that who puts
// something in waits in the same way.
func TestQueuesAreAlike(t *testing.T) {
	for name, open := range map[string]func(int) (queue, error){
		"ring": viewed, "copied": copied, "channel": channelQueue, "mutex": mutexQueue,
	} {
		for _, size := range []int{64, 4096} {
			q, err := open(size)
			if err != nil {
				t.Fatal(err)
			}
			full := make(chan int)
			go func() {
				n := 0
				for q.put(func([]byte) {}) && n < 2*queueBytes/size {
					n++
				}
				full <- n
			}()
			select {
			case n := <-full:
				if n != queueBytes/size {
					t.Errorf("%s has room for %d messages of %d bytes, want %d", name, n, size, queueBytes/size)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s, %d bytes: it waits by itself where it is full", name, size)
			}
		}
	}
}
