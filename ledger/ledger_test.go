package ledger

import (
	"math/rand/v2"
	"testing"

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
			func(b *Book) { b.Resume(Position{1, 1, 1000}); post(b, 998, 0, 1001) },
			Frames{Unique: 1, Duplicate: 2},
		},
		"resumed after a stop": {
			func(b *Book) { b.Resume(Position{1, 1, 9}); post(b, 13) },
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
				got.Corrupt != want.Corrupt || got.Missing != want.Missing || got.MissingCorrupt != want.MissingCorrupt ||
				got.MissingUnseen != want.MissingUnseen || got.Restarts != want.Restarts {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

// A stream with drops, duplicates and reordering, against a model that remembers every number.
func TestSequenceAgainstSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
			if f.Unique != uint64(len(seen)) || f.Duplicate != dup || f.Reordered != late || f.Missing != top-low+1-uint64(len(seen)) {
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
	if n := len(b.streams); n > MaxStreams {
		t.Errorf("%d streams followed, more than %d", n, MaxStreams)
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
