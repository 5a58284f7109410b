package loop

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// TestWhoSendsAFile: the scheduler is told of each send that may wait: of one whose file system may
// wait for something else, and of one beside goroutines of the same loop, which want its P. What
// has to be waited for goes aside, and so does much of which nobody knows.
func TestWhoSendsAFile(t *testing.T) {
	const size = 3 * fileShare
	for name, c := range map[string]struct {
		presence sys.Presence
		serving  int
		prompt   int64 // bytes of which the scheduler is not told
		large    int64 // at a time
	}{
		"prompt":                   {sys.Prompt, 0, size, fileShare},
		"prompt beside goroutines": {sys.Prompt, 1, 0, fileShare},
		"counted":                  {sys.Counted, 0, 0, fileShare},
		"absent":                   {sys.Absent, 0, 0, size},
		"unknown":                  {sys.Unknown, 0, 0, size},
	} {
		t.Run(name, func(t *testing.T) {
			f := &cachedFile{presence: c.presence}
			if n := sentBy(t, f, size, c.serving); n != size || f.taken.Load() != n {
				t.Errorf("%d bytes are said to be sent, %d were, want %d", n, f.taken.Load(), size)
			}
			if p := f.prompt.Load(); p != c.prompt {
				t.Errorf("the scheduler is not told of %d bytes, want %d", p, c.prompt)
			}
			if l := f.large.Load(); l != c.large {
				t.Errorf("%d bytes are sent at a time, want %d", l, c.large)
			}
		})
	}
}

// TestTheCacheIsAskedOnceATurn: a socket that takes less than its share is asked again, the page
// cache is not.
func TestTheCacheIsAskedOnceATurn(t *testing.T) {
	const shares = 4
	for _, presence := range []sys.Presence{sys.Prompt, sys.Counted} {
		f := &cachedFile{presence: presence, most: fileShare / 8}
		if n := sentBy(t, f, shares*fileShare, 0); n != shares*fileShare {
			t.Errorf("%d bytes are sent, want %d", n, shares*fileShare)
		}
		if n := f.asked.Load(); n != shares {
			t.Errorf("presence %d: the page cache was asked %d times, want once for each of %d shares", presence, n, shares)
		}
	}
}

// sentBy has a coroutine send so much of a file, beside so many goroutines of its loop.
func sentBy(t *testing.T, f *cachedFile, size int64, serving int) (n int64) {
	t.Helper()
	ended := make(chan int64, 1)
	_, d := tasked(t, f, func(g *CoConn) {
		g.c.loop.serving += serving
		n, err := g.SendFile(nil, 0, size)
		g.c.loop.serving -= serving
		if err != nil {
			t.Error(err)
		}
		ended <- n
	})
	for {
		select {
		case n := <-ended:
			return n
		case d.do <- func() {}:
		case <-time.After(time.Minute):
			t.Fatal("the file is not sent")
		}
	}
}
