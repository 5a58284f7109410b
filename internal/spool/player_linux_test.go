package spool

import (
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
)

// scribe is a handler that writes down its calls. It takes two bytes at a time, and pauses where
// they begin with a "!".
type scribe struct{ calls []string }

func (s *scribe) Arrived(view []byte, fresh int, at int64) (done int, more bool) {
	s.calls = append(s.calls, fmt.Sprintf("%s, %d fresh, at %d", view, fresh, at))
	for len(view)-done >= 2 {
		if view[done] == '!' {
			view[done] = '?' // once
			return done, false
		}
		done += 2
	}
	return done, true
}

func (s *scribe) Silent(view []byte, at int64) int {
	s.calls = append(s.calls, fmt.Sprintf("%s, silent at %d", view, at))
	return len(view)
}

func (s *scribe) Closed(view []byte, at int64, err error) {
	s.calls = append(s.calls, fmt.Sprintf("%s, closed at %d: %v", view, at, err))
}

func TestAPlayerShowsWhatAReaderWould(t *testing.T) {
	s := create(t, Config{})
	p, c := ends(t, s, s)
	read := func(kind Kind, at int64, text string) {
		t.Helper()
		if _, err := p.Read(kind, Moment{Wall: at}, 0, give(text)); err != nil {
			t.Fatal(err)
		}
	}
	note := func(m Mark) {
		t.Helper()
		if err := p.Note(m); err != nil {
			t.Fatal(err)
		}
	}
	note(Mark{Time: 1, Kind: Opened})
	read(Chunk, 2, "abc")
	read(Chunk, 3, "d!")
	read(Chunk, 4, "ef")
	note(Mark{Time: 5, Kind: Silent, B: 1})
	note(Mark{Time: 6, Kind: Silent, B: 2}) // nothing is held
	read(Message, 7, "")
	read(Chunk, 8, "g")
	note(Mark{Time: 9, Kind: Closed, A: uint32(syscall.EIO)})
	read(Chunk, 10, "h")
	note(Mark{Time: 11, Kind: Closed})

	var calls scribe
	play := func(c *Consumer) (resumed int) {
		t.Helper()
		player, err := c.Play(&calls)
		for n := 0; err == nil; n++ {
			_, ok, nerr := player.Next()
			if err = nerr; err == nil && !ok {
				if !player.paused {
					return resumed
				}
				resumed++
				err = player.Resume()
			}
			if n == 3 { // in the middle of what it holds
				err = c.Save(Checkpoint{Point: c.Point(), Data: []byte{1}})
			}
		}
		t.Fatal(err)
		return 0
	}
	if n := play(c); n != 1 {
		t.Errorf("it paused %d times", n)
	}
	want := []string{
		"abc, 3 fresh, at 2", "cd!, 2 fresh, at 3", "!ef, 2 fresh, at 4", "?ef, 0 fresh, at 4", "f, silent at 5",
		", 0 fresh, at 7",
		"g, 1 fresh, at 8", "g, closed at 9: read: " + syscall.EIO.Error(), "h, 1 fresh, at 10",
		"h, closed at 11: " + io.EOF.Error(),
	}
	if !slices.Equal(calls.calls, want) {
		t.Errorf("calls %q, want %q", calls.calls, want)
	}
	calls.calls = nil
	c, err := s.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	if play(c); !slices.Equal(calls.calls, want[3:]) {
		t.Errorf("from the checkpoint %q, want %q", calls.calls, want[3:])
	}
}
