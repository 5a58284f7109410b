package spool

import (
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/ring"
)

// TestBlockedUnderKills ends a producer at each step of a time without room, and of its end: by its
// note or by its mark the next one knows of it, and never by both, once it was noted.
func TestBlockedUnderKills(t *testing.T) {
	const since = 7
	for end := 0; ; end++ {
		s, err := Create(Config{Size: 4 << 10, Marks: 64})
		if err != nil {
			t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
		}
		p, c := ends(t, s, s)
		steps, noted, over := 0, false, false
		p.step = func() {
			noted = noted || ring.Uint64(s.owner, blockedAt).Load() != 0
			if steps++; steps > end {
				panic(killed{})
			}
		}
		func() {
			defer func() {
				if r := recover(); r != nil && r != (killed{}) {
					panic(r)
				}
			}()
			p.Block(since, NoRoom)
			p.Block(since, SpillFull)
			read := func(_ int, b []byte) (int, syscall.Errno) { return copy(b, "x"), 0 }
			if _, err := p.Read(Chunk, Moment{Wall: 9}, 0, read); err != nil {
				t.Fatal(err)
			}
			if err := p.Note(Mark{Time: since, Kind: Unattended, A: SpillFull, B: 2}); err != nil {
				t.Fatal(err)
			}
			p.Unblock()
			over = true
		}()
		p, err = s.Producer(64)
		if err != nil {
			t.Fatal(err)
		}
		at, _, ok := p.Blocked()
		told := 0
		if ok {
			told++
		}
		if ok && at != since {
			t.Errorf("step %d: since %d, want %d", end, at, since)
		}
		for {
			m, _, more, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			if m.Kind == Unattended {
				told++
			}
		}
		if want := map[bool]int{true: 1}[noted]; told != want {
			t.Errorf("step %d: the successor knows of %d times without room, want %d", end, told, want)
		}
		_ = s.Close()
		if over {
			return
		}
	}
}

// TestBlockedIsOld has a note of a producer before one that knew no notes, and read on: it says
// nothing.
func TestBlockedIsOld(t *testing.T) {
	s, err := Create(Config{})
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	defer s.Close()
	p, _ := ends(t, s, s)
	p.Block(7, NoRoom)
	if at, why, ok := p.Blocked(); at != 7 || why != NoRoom || !ok {
		t.Fatalf("since %d for %d: %v", at, why, ok)
	}
	for range 2 {
		if _, err := p.Read(Chunk, Moment{Wall: 9}, 0, give("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := p.Blocked(); ok {
		t.Error("a note holds behind two reads")
	}
}
