package spool

import (
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/ring"
)

// blockable is a spool without room.
func blockable(t *testing.T, cfg Config) *Spool {
	t.Helper()
	s, err := Create(cfg)
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestTimesWithoutRoom notes when nobody read: who asks has each end once, and the one that lasts;
// what is brief nobody hears of.
func TestTimesWithoutRoom(t *testing.T) {
	s := blockable(t, Config{Size: 4 << 10, Marks: 64})
	if times, known := s.Unread(0); len(times) > 0 || known != 0 {
		t.Errorf("a new one has %+v, and %d that are over", times, known)
	}
	s.Block(time.Now().UnixNano(), NoRoom)
	if times, _ := s.Unread(0); len(times) > 0 && time.Now().UnixNano()-times[0].From < int64(Brief) {
		t.Errorf("it lasts for no time, and is told: %+v", times)
	}
	s.Unblock(Brief - 1)
	if times, known := s.Unread(0); len(times) > 0 || known != 0 {
		t.Errorf("it was brief: %+v, %d", times, known)
	}
	s.Block(7, NoRoom)
	s.Block(7, SpillFull)
	if times, known := s.Unread(0); known != 0 || !slices.Equal(times, []Time{{7, 0, SpillFull}}) {
		t.Errorf("it lasts: %+v, %d", times, known)
	}
	if at, why, ok := s.Blocked(); at != 7 || why != SpillFull || !ok {
		t.Errorf("the next reader finds %d, %d, %v", at, why, ok)
	}
	s.Unblock(Brief)
	s.Unblock(2 * Brief) // nothing lasts
	over := Time{7, 7 + int64(Brief), SpillFull}
	if times, known := s.Unread(0); known != 1 || !slices.Equal(times, []Time{over}) {
		t.Errorf("it is over: %+v, %d", times, known)
	}
	s.Block(9, NoRoom)
	if times, known := s.Unread(1); known != 1 || !slices.Equal(times, []Time{{9, 0, NoRoom}}) {
		t.Errorf("another one lasts: %+v, %d", times, known)
	}
	const most = 3 * mostKept
	for i := range int64(most) {
		s.Block(10+i, NoRoom)
		s.Unblock(Brief)
	}
	times, known := s.Unread(1)
	if known != most+1 || len(times) < leastKept-1 || len(times) >= mostKept {
		t.Fatalf("%d times that are over, %d of them known", known, len(times))
	}
	for i, at := range times {
		if want := 10 + int64(most-len(times)+i); at.From != want {
			t.Errorf("time %d is %+v, want it from %d on", i, at, want)
		}
	}
}

// TestTimesWithoutRoomUnderKills finds what was left behind each step of noting an end: the time is
// known once.
func TestTimesWithoutRoomUnderKills(t *testing.T) {
	for _, cleared := range []bool{false, true} {
		s := blockable(t, Config{Size: 4 << 10, Marks: 64})
		s.Block(7, NoRoom)
		s.Unblock(Brief)
		if !cleared { // who noted the end was killed before it took the beginning back
			ring.Uint64(s.owner, blockedAt).Store(7)
		}
		if at, why, ok := s.Blocked(); ok {
			t.Errorf("cleared %v: it lasts since %d for %d", cleared, at, why)
		}
		s.Unblock(3 * Brief)
		if times, _ := s.Unread(0); !slices.Equal(times, []Time{{7, 7 + int64(Brief), NoRoom}}) {
			t.Errorf("cleared %v: %+v", cleared, times)
		}
	}
}

// TestTimesOfAnOlderProgram takes the memory that the program before made, which asked for no room
// for times: what lies behind its marks, up to the end of a page, has room for some.
func TestTimesOfAnOlderProgram(t *testing.T) {
	r, err := ring.NewShared("tallywheel-spool", 64<<10, int(ownerBytes(4096, MaxRoom)))
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	ring.Uint64(r.Owner(), slotsAt).Store(4096)
	ring.Uint64(r.Owner(), roomAt).Store(MaxRoom)
	ring.Uint64(r.Owner(), versionAt).Store(Version)
	s, err := of(r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.kept() < leastKept {
		t.Errorf("it has room for %d", s.kept())
	}
	s.Block(7, NoRoom)
	s.Unblock(Brief)
	if times, known := s.Unread(0); len(times) != 1 || known != 1 {
		t.Errorf("%+v, %d", times, known)
	}
	s.owner = s.owner[:ownerBytes(s.slots, s.room)] // and one without any
	s.Block(9, NoRoom)
	s.Unblock(Brief)
	if times, known := s.Unread(1); len(times) != 0 || known != 1 {
		t.Errorf("without room: %+v, %d", times, known)
	}
}
