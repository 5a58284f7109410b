package ledger

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

var one = Stream{Device: 1, Epoch: 1}

func post(b *Book, seqs ...uint64) {
	for _, s := range seqs {
		b.Read(128)
		b.Numbered(128, one, s)
	}
}

func corrupt(b *Book, bytes int) {
	b.Read(bytes)
	b.Damaged()
	b.Skip(bytes)
}

func sheet(t *testing.T, b *Book) Frames {
	t.Helper()
	p := b.Sheet("p", "open", Held{Frames: b.frames.OK}, nil)
	if len(p.Unbalanced) > 0 {
		t.Errorf("the sheet does not balance: %v", p.Unbalanced)
	}
	return p.Frames
}

func TestEachFaultUnderItsName(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(b *Book)
		want Frames
	}{
		"nothing wrong": {func(b *Book) { post(b, 5, 6, 7) }, Frames{Unique: 3}},
		"dropped":       {func(b *Book) { post(b, 0, 3) }, Frames{Unique: 2, Missing: 2, MissingUnseen: 2}},
		"duplicate":     {func(b *Book) { post(b, 0, 1, 1, 2, 0) }, Frames{Unique: 3, Duplicate: 2}},
		"reordered":     {func(b *Book) { post(b, 0, 2, 1, 3) }, Frames{Unique: 4, Reordered: 1}},
		"reordered before the first": {
			func(b *Book) { post(b, 4, 3, 5, 1) },
			Frames{Unique: 4, Reordered: 2, Missing: 1, MissingUnseen: 1},
		},
		"corrupt": {
			func(b *Book) { post(b, 0); corrupt(b, 128); post(b, 2) },
			Frames{Unique: 2, Corrupt: 1, Missing: 1, MissingCorrupt: 1},
		},
		"corrupt beside dropped": {
			func(b *Book) { post(b, 0); corrupt(b, 125); post(b, 3) },
			Frames{Unique: 2, Corrupt: 1, Missing: 2, MissingCorrupt: 1, MissingUnseen: 1},
		},
		"corrupt without its sync": {
			func(b *Book) { post(b, 0); b.Read(128); b.Skip(128); post(b, 2) },
			Frames{Unique: 2, Corrupt: 1, Missing: 1, MissingCorrupt: 1},
		},
		"only the tail of a frame": {
			func(b *Book) { post(b, 0); b.Read(9); b.Skip(9); post(b, 2) },
			Frames{Unique: 2, Corrupt: 1, Missing: 1, MissingCorrupt: 1},
		},
		"noise between frames": {
			func(b *Book) { post(b, 0); b.Read(40); b.Skip(40); post(b, 1, 2) },
			Frames{Unique: 3},
		},
		"corrupt, a duplicate, then the gap": {
			func(b *Book) { post(b, 0); corrupt(b, 128); post(b, 0, 2) },
			Frames{Unique: 2, Duplicate: 1, Corrupt: 1, Missing: 1, MissingCorrupt: 1},
		},
		"corrupt and reordered": {
			func(b *Book) { post(b, 0); corrupt(b, 128); post(b, 3, 2) },
			Frames{Unique: 3, Reordered: 1, Corrupt: 1, Missing: 1, MissingCorrupt: 1},
		},
		"device restarts": {
			func(b *Book) { post(b, 8, 9); b.Read(128); b.Numbered(128, Stream{1, 2}, 2) },
			Frames{Unique: 3, Restarts: 1, Missing: 2, MissingUnseen: 2},
		},
		"absurd jump": {
			func(b *Book) { post(b, 0, 1, 1<<60, 1<<60+1) },
			Frames{Unique: 4, Restarts: 1},
		},
		"resumed, then older frames again": {
			func(b *Book) { b.Resume(Position{Device: 1, Epoch: 1, Last: 1000}); post(b, 998, 0, 1001) },
			Frames{Unique: 1, Duplicate: 2},
		},
		"resumed, then counted anew": {
			func(b *Book) { b.Resume(Position{Device: 1, Epoch: 1, Last: 1009}); post(b, 0, 1, 3, 4, 6) },
			Frames{Unique: 5, Restarts: 1, Missing: 2, MissingUnseen: 2},
		},
		"resumed, then a few older frames, beside new ones": {
			func(b *Book) {
				b.Resume(Position{Device: 1, Epoch: 1, Last: 1009})
				post(b, 3, 4, 5, 1010, 6, 7, 8, 1011)
			},
			Frames{Unique: 2, Duplicate: 6},
		},
		"resumed, then one old frame again and again": {
			func(b *Book) { b.Resume(Position{Device: 1, Epoch: 1, Last: 1009}); post(b, 7, 7, 7, 7, 7, 1010) },
			Frames{Unique: 1, Duplicate: 5},
		},
		"resumed, then a block of old frames again, and on where it was": {
			func(b *Book) {
				b.Resume(Position{Device: 1, Epoch: 1, Last: 1009})
				post(b, 500, 501, 502, 503, 504)
				corrupt(b, 128)
				post(b, 506, 509, 1010, 1012, 499)
			},
			Frames{Unique: 2, Duplicate: 8, Corrupt: 1, Missing: 1, MissingUnseen: 1},
		},
		"absurd jump down": {
			func(b *Book) { post(b, 1<<60, 1<<60+1, 5, 6, 8) },
			Frames{Unique: 5, Restarts: 1, Missing: 1, MissingUnseen: 1},
		},
		"jump by half of all numbers": {
			func(b *Book) { post(b, 0, 1, 1<<63, 1<<63+1, 1<<63+5) },
			Frames{Unique: 5, Restarts: 1, Missing: 3, MissingUnseen: 3},
		},
		"one absurd number": {
			func(b *Book) { post(b, 0, 1, 1<<40, 2, 3, 5) },
			Frames{Unique: 6, Restarts: 2, Missing: 1, MissingUnseen: 1},
		},
		"resumed after a stop": {
			func(b *Book) { b.Resume(Position{Device: 1, Epoch: 1, Last: 9}); post(b, 13) },
			Frames{Unique: 1, Missing: 3, MissingUnseen: 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook(128)
			c.do(b)
			got := sheet(t, b)
			want := c.want
			want.OK = want.Unique + want.Duplicate
			want.InFlight, want.Dropped = want.OK, got.Dropped
			if got.Unique != want.Unique || got.Duplicate != want.Duplicate || got.Reordered != want.Reordered ||
				got.Corrupt != want.Corrupt || got.Missing != want.Missing ||
				got.MissingCorrupt != want.MissingCorrupt ||
				got.MissingUnseen != want.MissingUnseen || got.Restarts != want.Restarts {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

// A stream with drops, duplicates and reordering, against a model that remembers every number.
func TestSequenceAgainstSet(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var sent []uint64
		for s := range uint64(rapid.IntRange(1, 400).Draw(t, "frames")) {
			for range 1 + rng.IntN(8)/7 {
				if rng.IntN(10) > 0 {
					sent = append(sent, s)
				}
			}
		}
		for i := range sent {
			j := min(len(sent)-1, i+rng.IntN(4))
			sent[i], sent[j] = sent[j], sent[i]
		}
		b, seen := NewBook(128), map[uint64]bool{}
		var top, low uint64
		var dup, late uint64
		for i, s := range sent {
			b.Read(128)
			b.Numbered(128, one, s)
			switch {
			case seen[s]:
				dup++
			case i > 0 && s < top:
				late++
			}
			if i == 0 || s > top {
				top = s
			}
			if i == 0 || s < low {
				low = s
			}
			seen[s] = true
			p := b.Sheet("p", "", Held{Frames: b.frames.OK}, nil)
			if len(p.Unbalanced) > 0 {
				t.Fatalf("after %d frames: %v", i+1, p.Unbalanced)
			}
			f := p.Frames
			if f.Unique != uint64(len(seen)) || f.Duplicate != dup || f.Reordered != late ||
				f.Missing != top-low+1-uint64(len(seen)) {
				t.Fatalf("after %v: %+v; want unique %d, duplicate %d, reordered %d, missing %d",
					sent[:i+1], f, len(seen), dup, late, top-low+1-uint64(len(seen)))
			}
		}
	})
}

func TestBoundsSettleAndStillBalance(t *testing.T) {
	b := NewBook(128)
	for i := range uint64(2*MaxGaps + 10) {
		post(b, 2*i)
	}
	for d := range uint32(2 * MaxStreams) {
		b.Read(128)
		b.Numbered(128, Stream{d, 7}, uint64(d))
	}
	sheet(t, b)
	if b.active.n > MaxStreams {
		t.Errorf("%d streams followed, more than %d", b.active.n, MaxStreams)
	}
}

// A device that sends all the time is followed, however many others come and go: it is not its age
// that a book forgets by.
func TestStableDeviceBesideOneThatReboots(t *testing.T) {
	for _, reboots := range []uint64{3 * MaxStreams, MaxPositions + 100} {
		b := NewBook(128)
		for i := range reboots {
			post(b, i)
			b.Read(128)
			b.Numbered(128, Stream{2, uint32(i)}, 0)
		}
		forgotten := uint64(0) // of the one that reboots
		if reboots+1 > MaxPositions {
			forgotten = reboots + 1 - MaxPositions
		}
		if f := sheet(t, b); f.Missing != 0 || f.Duplicate != 0 || f.Forgotten != forgotten {
			t.Errorf("%+v; want nothing missing, %d forgotten", f, forgotten)
		}
	}
}

// With more devices than are followed, each goes on at its number: what it lost shows, and nothing
// else does.
func TestManyDevices(t *testing.T) {
	b := NewBook(128)
	const devices = 2000
	for i := range uint64(10) {
		for d := range uint32(devices) {
			if i == 5 && d%10 == 0 {
				continue
			}
			b.Read(128)
			b.Numbered(128, Stream{d, 1}, 100+i)
		}
	}
	if f := sheet(t, b); f.Missing != devices/10 || f.Forgotten != 0 || f.Restarts != 0 {
		t.Errorf("%+v; want %d missing", f, devices/10)
	}
	next := NewBook(128) // the next start
	for _, p := range b.Positions() {
		next.Resume(p)
	}
	for d := range uint32(devices) {
		next.Read(128)
		next.Numbered(128, Stream{d, 1}, 112)
	}
	if f := sheet(t, next); f.Missing != 2*devices || f.Forgotten != 0 {
		t.Errorf("the next start: %+v; want %d missing", f, 2*devices)
	}
}

// Connections of many devices may be read in another order than that in which they were made: a
// frame that comes late is known for what it is, also after a thousand others have sent.
func TestLateFrameOfOneAmongMany(t *testing.T) {
	b := NewBook(128)
	for _, number := range []uint64{0, 1, 3, 2, 4} {
		for d := range uint32(2 * MaxStreams) {
			b.Read(128)
			b.Numbered(128, Stream{d, 1}, number)
		}
	}
	if f := sheet(t, b); f.Missing != 0 || f.Duplicate != 0 || f.Reordered != 2*MaxStreams {
		t.Errorf("%+v; want nothing missing, nothing twice", f)
	}
}

// What must be forgotten is counted, so that no sheet looks better than it is.
func TestForgottenIsCounted(t *testing.T) {
	b := NewBook(128)
	for d := range uint32(MaxPositions + 5) {
		b.Read(128)
		b.Numbered(128, Stream{d, 1}, 7)
	}
	if f := sheet(t, b); f.Forgotten != 5 || len(b.Positions()) != MaxPositions {
		t.Errorf("%+v, %d positions; want 5 forgotten", f, len(b.Positions()))
	}
}

// Late frames of a gap that is followed no longer look like duplicates: that is said, once for each
// stream.
func TestForgottenGapsAreCounted(t *testing.T) {
	b := NewBook(128)
	for i := range uint64(MaxGaps + 10) {
		post(b, 2*i)
	}
	if f := sheet(t, b); f.Forgotten != 1 || f.Missing != MaxGaps+9 {
		t.Errorf("%+v; want one stream forgotten", f)
	}
	b = NewBook(128)
	post(b, 0, 2*MaxGaps)
	for i := range uint64(MaxGaps - 1) { // one gap becomes many
		post(b, 2*i+2)
	}
	if f := sheet(t, b); f.Forgotten != 0 {
		t.Errorf("%+v; want none forgotten", f)
	}
	for d := range uint32(MaxStreams) {
		b.Read(128)
		b.Numbered(128, Stream{2 + d, 1}, 0)
	}
	if f := sheet(t, b); f.Forgotten != 1 {
		t.Errorf("%+v; want one stream forgotten as it rests", f)
	}
}

// Numbers go on across 2^64: in one run, with losses, late frames and duplicates, and across a
// restart.
func TestNumbersAcrossTheEnd(t *testing.T) {
	const last = ^uint64(0)
	b := NewBook(128)
	post(b, last-3, last-2, last, 2, last-1, 1, 3, last, 3)
	want := Frames{Unique: 7, Reordered: 2, Duplicate: 2, Missing: 1}
	if f := sheet(t, b); f.Unique != want.Unique || f.Reordered != want.Reordered || f.Duplicate != want.Duplicate ||
		f.Missing != want.Missing {
		t.Errorf("%+v; want %+v", f, want)
	}
	for _, end := range []uint64{last - 2, last - 1, last, 0, 1} {
		b = NewBook(128)
		b.Resume(Position{Device: 1, Epoch: 1, Last: end})
		post(b, end+1, end+2, end+5)
		if f := sheet(t, b); f.Missing != 2 || f.Duplicate != 0 || b.Positions()[0].Last != end+5 {
			t.Errorf("resumed after %d: %+v, %+v", end, f, b.Positions())
		}
	}
}

func TestUnbalancedIsNamed(t *testing.T) {
	b := NewBook(128)
	post(b, 0, 1)
	b.Read(3)
	p := b.Sheet("p", "open", Held{Frames: 1}, nil)
	if len(p.Unbalanced) != 2 {
		t.Errorf("two equations are broken, the sheet names %v", p.Unbalanced)
	}
	if NewSheet(1, 0, []Port{p}).Balanced {
		t.Error("a sheet with an unbalanced port says it is balanced")
	}
}

// Numbers that another book has are no loss of this one, and what it knew to be missing stays
// missing.
func TestAdvance(t *testing.T) {
	b := NewBook(128)
	post(b, 0, 2)
	b.Advance(Position{Device: 1, Epoch: 1, Last: 1}) // it has come further
	b.Advance(Position{Device: 1, Epoch: 1, Last: 9})
	b.Advance(Position{Device: 2, Epoch: 1, Last: 4})
	post(b, 10, 12, 1)
	b.Numbered(128, Stream{2, 1}, 5)
	b.Read(128)
	if f := sheet(t, b); f.Missing != 2 || f.Unique != 5 || f.Duplicate != 1 {
		t.Errorf("%+v; want two missing, and a late one that cannot be told from a duplicate", f)
	}
}

// A book that takes over the counts of another balances as both did.
func TestAbsorb(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		books := []*Book{NewBook(128), NewBook(128)}
		var ok, missing uint64
		for i, b := range books {
			for range rapid.IntRange(0, 50).Draw(t, "posts") {
				post(b, rapid.Uint64Range(0, 40).Draw(t, "number"))
				if rapid.Bool().Draw(t, "noise") {
					corrupt(b, 50)
					b.Plain(7)
					b.Read(7)
				}
			}
			b.Unread("why", uint64(i))
			ok += b.frames.OK
			missing += b.frames.Missing
		}
		books[0].Absorb(books[1])
		p := books[0].Sheet("p", "open", Held{Frames: ok}, nil)
		if len(p.Unbalanced) > 0 || p.Frames.OK != ok || p.Frames.Missing != missing || p.Unread["why"] != 1 {
			t.Fatalf("%+v: %v", p, p.Unbalanced)
		}
	})
}

// No outage ends before it begins: where the clock was set back while it lasted, it says so.
func TestOutageInWhichTheClockWasSetBack(t *testing.T) {
	for _, c := range []struct{ from, to int64 }{{10e9, 20e9}, {10e9, 9.9e9}, {90e9, 10e9}} {
		b := NewBook(0)
		b.OutageBegins(c.from, "not there")
		b.OutageEnds(c.to)
		o := b.Sheet("a", StateOpen, Held{}, nil).Outages[0]
		told := strings.HasSuffix(o.Cause, ClockSet)
		if o.To < o.From || told != (c.from-c.to > 1e9) {
			t.Errorf("%d to %d: %+v", c.from, c.to, o)
		}
	}
}

// The last loss is that of the last start that lost something, by their order.
func TestLastLossWhereTheClockWasSetBack(t *testing.T) {
	sheet := func(since Time, lost uint64) *Sheet {
		p := Port{ID: "a", Proof: ProofNumbers, Heard: true, LastLoss: since + 5}
		p.Frames.Missing, p.Frames.MissingUnseen = lost, lost
		s := NewSheet(int64(since+9), int64(since), []Port{p})
		return &s
	}
	var p Past
	p.Add(sheet(1000, 2))
	p.Add(sheet(100, 2))
	p.Add(sheet(50, 0))
	if p.LastLoss != 105 {
		t.Errorf("earlier starts: %d, want 105", p.LastLoss)
	}
	for lost, want := range map[uint64]Time{0: 105, 1: 25} {
		s := sheet(20, lost)
		s.Past = &p
		if v := s.Judge(); v.LastLoss != want {
			t.Errorf("%d lost now: %d, want %d", lost, v.LastLoss, want)
		}
	}
}
