package ledger

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// A name under which nothing came hands on what it was given, and not what it knows of its past.
func TestSucceedBehindAnEmptyName(t *testing.T) {
	for name, c := range map[string]struct {
		empty *Book
		then  func(x *Book) // … becomes of it
	}{
		"as it was": {NewBook(128), func(*Book) {}},
		"restored": {NewBook(128), func(x *Book) {
			state := x.State(LeastState)
			*x = *NewBook(128)
			if err := x.Restore(state); err != nil {
				t.Fatal(err)
			}
		}},
		"in place of its past": {resumed(700), func(*Book) {}},
		"over a start": {NewBook(128), func(x *Book) {
			got, at := x.Succession(), x.Positions()
			*x = *NewBook(128)
			for _, p := range at {
				x.Resume(p)
			}
			x.Inherit(got)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := resumed(5099)
			c.empty.Succeed(seen(99))
			c.then(c.empty)
			b.Succeed(c.empty)
			post(b, 110, 111, 112, 113, 114)
			if f := sheet(t, b); f.Missing != 10 || f.Restarts != 0 || f.Unique != 5 {
				t.Errorf("%+v; want 10 missing", f)
			}
		})
	}

	x, b := resumed(99), resumed(5099)
	x.Succeed(resumed(80)) // of a past, and not further
	b.Succeed(x)
	if _, last, _ := b.Follows(one); last != 5099 {
		t.Errorf("it goes on behind %d, which only the past of another name has", last)
	}
	x.Succeed(seen(120))
	x.Advance(Position{Device: 1, Epoch: 1, Last: 200}) // of its own past
	if b.Succeed(x); b.streams[one].succeeds {
		t.Error("a place in its own past is called that of the device")
	}
	x.Inherit([]Position{{Device: 1, Epoch: 1, Last: 199}, {Device: 2, Epoch: 1, Last: 7}})
	if got := x.Succession(); len(got) > 0 {
		t.Errorf("what it does not go on with is called that of the device: %+v", got)
	}
}

// resumed is a book that goes on behind a number of its past.
func resumed(last uint64) *Book {
	b := NewBook(128)
	b.Resume(Position{Device: 1, Epoch: 1, Last: last})
	return b
}

// seen is a book that was shown a number.
func seen(number uint64) *Book {
	b := NewBook(128)
	post(b, number)
	return b
}

// A frame that comes late for a gap of an earlier book is late, once; whatever else is below is a
// duplicate, or of a device that counts anew.
func TestLateOverBooks(t *testing.T) {
	gaps := []Gap{{From: 500, To: 502}, {From: 1005, To: 1005, Known: true}}
	for name, c := range map[string]struct {
		posts []uint64
		want  Frames
	}{
		"late":                {[]uint64{1010, 501, 500}, Frames{Unique: 3, Late: 2}},
		"late twice":          {[]uint64{501, 501}, Frames{Unique: 1, Late: 1, Duplicate: 1}},
		"acknowledged before": {[]uint64{1005, 502}, Frames{Unique: 2, Late: 2, LateKnown: 1}},
		"all of them, rising": {[]uint64{500, 501, 502, 1005, 1010}, Frames{Unique: 5, Late: 4, LateKnown: 1}},
		"counted anew": {
			[]uint64{499, 500, 501, 503, 504, 505},
			Frames{Unique: 6, Restarts: 1, Missing: 1},
		},
		"old ones again, and on where it was": {
			[]uint64{499, 500, 501, 503, 504, 505, 1010, 502},
			Frames{Unique: 4, Late: 3, Duplicate: 4},
		},
		"old ones again, in the middle of a gap": {
			[]uint64{490, 491, 492, 493, 501, 1010, 500},
			Frames{Unique: 3, Late: 2, Duplicate: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook(128)
			b.Resume(Position{Device: 1, Epoch: 1, Last: 1009, Gaps: gaps})
			post(b, c.posts...)
			f := sheet(t, b)
			got := Frames{
				Unique: f.Unique, Late: f.Late, LateKnown: f.LateKnown, Duplicate: f.Duplicate,
				Restarts: f.Restarts, Missing: f.Missing,
			}
			if got.Unique != c.want.Unique || got.Late != c.want.Late || got.LateKnown != c.want.LateKnown ||
				got.Duplicate != c.want.Duplicate || got.Restarts != c.want.Restarts || got.Missing != c.want.Missing {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// Numbers before the one with which an earlier book began are no duplicates, and what they leave
// out is missing, unless the device counts anew.
func TestNumbersBeforeTheBeginning(t *testing.T) {
	for name, c := range map[string]struct {
		posts []uint64
		want  Frames
		begin uint64
	}{
		"two":                 {[]uint64{997, 995, 1010}, Frames{Unique: 3, Reordered: 2, Missing: 3}, 995},
		"one after the other": {[]uint64{997, 1010, 995, 1011}, Frames{Unique: 4, Reordered: 2, Missing: 3}, 995},
		"and one of the gap": {
			[]uint64{995, 1010, 998, 996},
			Frames{Unique: 4, Reordered: 3, Missing: 4, Late: 2},
			995,
		},
		"the one before":       {[]uint64{999, 1010}, Frames{Unique: 2, Reordered: 1}, 999},
		"the same twice":       {[]uint64{999, 999, 1010, 999}, Frames{Unique: 2, Reordered: 1, Duplicate: 2}, 999},
		"behind the beginning": {[]uint64{1001, 1010}, Frames{Unique: 1, Duplicate: 1}, 1000},
		"nothing goes on":      {[]uint64{997, 995}, Frames{Duplicate: 2}, 1000},
		"far away":             {[]uint64{1<<64 - MaxGaps + 999, 1010}, Frames{Unique: 1, Duplicate: 1}, 1000},
		"the device is new":    {[]uint64{990, 991, 992, 994}, Frames{Unique: 4, Restarts: 1, Missing: 1}, 990},
		"old ones again, and on where it was": {
			[]uint64{990, 991, 992, 993, 1010, 999, 1011}, Frames{Unique: 3, Reordered: 1, Duplicate: 4}, 999,
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := NewBook(128)
			for number := uint64(1000); number < 1010; number++ {
				post(first, number)
			}
			b := NewBook(128)
			b.Resume(first.Positions()[0])
			post(b, c.posts...)
			f := sheet(t, b)
			got := Frames{
				Unique: f.Unique, Reordered: f.Reordered, Late: f.Late, Duplicate: f.Duplicate,
				Restarts: f.Restarts, Missing: f.Missing,
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
			at := b.Positions()[0]
			if begin := cmp.Or(at.First, at.Begin); begin == nil || *begin != c.begin {
				t.Errorf("the stream began with %v, want %d", begin, c.begin)
			}
			if next := NewBook(128); true {
				next.Resume(at)
				post(next, c.begin-1, at.Last+1)
				if f := sheet(t, next); f.Unique != 2 || f.Duplicate+f.Missing > 0 {
					t.Errorf("the book behind: %+v", f)
				}
			}
		})
	}
}

// What an earlier book has counted beyond the number that this one goes on from is not counted
// again.
func TestCountedBeyondThePosition(t *testing.T) {
	gaps := []Gap{{From: 11, To: 12}, {From: 14, To: 15, Dropped: true}}
	for name, c := range map[string]struct {
		posts                            []uint64
		unique, late, duplicate, missing uint64
	}{
		"all at once":     {[]uint64{20}, 1, 0, 0, 7},
		"one by one":      {[]uint64{9, 10, 11, 12, 13, 14, 15, 16}, 6, 2, 2, 0},
		"late":            {[]uint64{20, 12, 11, 13, 14}, 4, 2, 1, 6},
		"into the gap":    {[]uint64{12, 20}, 2, 1, 0, 7},
		"into what fell":  {[]uint64{15, 20}, 1, 0, 1, 7},
		"up to its brink": {[]uint64{10, 13, 16}, 3, 0, 0, 1},
	} {
		b := NewBook(128)
		b.Resume(Position{Device: 1, Epoch: 1, Last: 8, Gaps: gaps})
		post(b, c.posts...)
		if f := sheet(t, b); f.Unique != c.unique || f.Late != c.late || f.Duplicate != c.duplicate ||
			f.Missing != c.missing {
			t.Errorf("%s: %+v; want %+v", name, f, c)
		}
	}
}

// Over books that follow each other, with losses, late frames, duplicates and words of those who
// know: over all of them as many are missing as never came, and as many count as are not known.
func TestBooksInARowAgainstSet(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		next := rng.Uint64N(1000)
		if seed%5 == 0 {
			next = ^uint64(60) // the numbers go on at 0
		}
		lost := map[uint64]bool{} // … and known
		var past Past
		var all Frames
		var ps []Position
		for book := range 4 {
			b := NewBook(0)
			for _, p := range ps {
				b.Resume(p)
			}
			s := func() *Sheet {
				p := b.Sheet("a", StateOpen, Held{Frames: b.frames.OK}, nil)
				if len(p.Unbalanced) > 0 {
					t.Fatalf("seed %d: %v", seed, p.Unbalanced)
				}
				s := NewSheet(1, int64(book+1), []Port{p})
				if s.Ports[0].Proof = ProofNumbers; p.Known != nil {
					s.Ack = &Ack{At: 1}
				}
				return &s
			}
			for range 40 {
				switch rng.IntN(6) {
				case 0:
					for n := rng.IntN(3); n >= 0 && len(lost) < 12; n-- { // gaps that are few enough to be carried
						if len(lost) > 0 || book > 0 || b.frames.OK > 0 {
							lost[next] = false
							next++
						}
					}
					fallthrough
				case 1, 2:
					post(b, next)
					next++
				case 3, 4:
					if len(lost) > 0 {
						seq := slices.Collect(maps.Keys(lost))[rng.IntN(len(lost))]
						post(b, seq)
						delete(lost, seq)
					}
				case 5:
					if rng.IntN(4) == 0 {
						b.BeginAck(nil)
						b.EndAck(true)
						past = Past{}
						for seq := range lost {
							lost[seq] = true
						}
					}
				}
			}
			now := past
			now.TakeBack(s())
			news := uint64(0)
			for _, known := range lost {
				if !known {
					news++
				}
			}
			v := s().Judge()
			if got := now.LostWire.Frames + v.LostWire.Frames; got != news {
				t.Fatalf("seed %d, book %d: %d count, %d are lost and not known", seed, book, got, news)
			}
			past.Add(s())
			all.Missing, all.Late = all.Missing+b.frames.Missing, all.Late+b.frames.Late
			if all.Missing-all.Late != uint64(len(lost)) {
				t.Fatalf("seed %d, book %d: %d missing and %d late, %d never came", seed, book, all.Missing, all.Late,
					len(lost))
			}
			ps = b.Positions()
		}
	}
}

// What a later book is told is bounded, and the gaps of the streams that sent last are in it.
func TestCarriedGapsAreBounded(t *testing.T) {
	b := NewBook(128)
	for d := range uint32(200) {
		for i := range uint64(40) {
			b.Read(128)
			b.Numbered(128, Stream{d, 1}, 2*i)
		}
	}
	ps, n := b.Positions(), 0
	for _, p := range ps {
		n += len(p.Gaps)
	}
	last := ps[len(ps)-1]
	if n != MaxCarriedGaps || len(last.Gaps) != MaxRestingGaps+MaxWideGaps ||
		last.Gaps[len(last.Gaps)-1] != (Gap{From: 77, To: 77}) || len(ps[0].Gaps) > 0 {
		t.Errorf("%d gaps; of the last stream %+v", n, last.Gaps)
	}
	next := NewBook(128)
	// of a damaged file
	next.Resume(Position{
		Device: 1, Epoch: 1, Last: 1 << 20,
		Gaps: []Gap{{From: 0, To: 4 * maxCarriedParts}, {From: 1, To: 0}, {From: 5, To: 9}},
	})
	for i := range uint64(2 * maxCarriedParts) {
		post(next, 4*maxCarriedParts-1-2*i)
	}
	if f := sheet(t, next); f.Late == 0 || f.Forgotten != 1 || len(next.streams[one].carried) > maxCarriedParts {
		t.Errorf("%+v, %d parts", f, len(next.streams[one].carried))
	}
}

// A later book is told of the wide gaps of a stream, however many narrow ones lie behind them: the
// frames of a device wait in one connection while others are read.
func TestWideGapsAreCarried(t *testing.T) {
	b := NewBook(128)
	want := []Gap{}
	number := uint64(0)
	lose := func(n uint64) (g Gap) {
		post(b, number)
		g = Gap{From: number + 1, To: number + n}
		number += n + 1
		return g
	}
	for i := range uint64(500) {
		if i%25 == 7 {
			if g := lose(100 + i); i >= 100 { // there is no room for the four narrowest of the twenty
				want = append(want, g)
			}
		}
		g := lose(1 + i%2)
		if i >= 500-MaxRestingGaps {
			want = append(want, g)
		}
	}
	post(b, number)
	if got := b.Positions()[0].Gaps; !slices.Equal(got, want) {
		t.Errorf("told of %v, not of %v", got, want)
	}
}

// What is left of a gap without others is the numbers that are in none of them, also across 2^64.
func TestGapWithoutOthers(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		zero := -uint64(rng.IntN(30)) // the device counts on across 2^64
		random := func() Gap {
			from := zero + uint64(rng.IntN(40))
			return Gap{From: from, To: from + uint64(rng.IntN(12)), Dropped: true}
		}
		g, others := random(), []Gap{}
		for range rng.IntN(5) {
			others = append(others, random())
		}
		in := func(gaps []Gap, n uint64) (times int) {
			for _, g := range gaps {
				if g.contains(n) {
					times++
				}
			}
			return times
		}
		left := g.Without(others)
		for n := zero - 5; n != zero+60; n++ {
			want := 0
			if g.contains(n) && in(others, n) == 0 {
				want = 1
			}
			if in(left, n) != want {
				t.Fatalf("seed %d: %v without %v is %v, and %d is in it %d times", seed, g, others, left, n,
					in(left, n))
			}
		}
		for _, l := range left {
			if !l.Dropped {
				t.Fatalf("seed %d: %v has lost what it is", seed, l)
			}
		}
	}
}

// A book says of numbers whether all of them are missing now.
func TestBookMisses(t *testing.T) {
	id := Stream{1, 1}
	b := NewBook(0)
	for _, n := range []uint64{0, 5, 9, 3} { // 1, 2, 4 and 6 to 8 are missing
		b.Numbered(1, id, n)
	}
	for _, c := range []struct {
		from, to uint64
		want     bool
	}{
		{1, 2, true},
		{2, 2, true},
		{1, 3, false},
		{4, 4, true},
		{4, 6, false},
		{5, 7, false},
		{6, 8, true},
		{7, 8, true},
		{8, 9, false},
		{9, 9, false},
		{10, 10, false},
	} {
		if got := b.Misses(id, c.from, c.to); got != c.want {
			t.Errorf("%d to %d: %v", c.from, c.to, got)
		}
	}
	if b.Misses(Stream{2, 1}, 1, 1) {
		t.Error("a device that never came misses something")
	}
}

// TestABookThatSawNothingHandsOnWhatItWasTold: a process that is killed before it has read anything
// leaves as many gaps behind its last number as it was told of, and the next one names none twice.
func TestABookThatSawNothingHandsOnWhatItWasTold(t *testing.T) {
	at := Position{Device: 1, Epoch: 1, Last: 100}
	for n := range uint64(100) {
		at.Gaps = append(at.Gaps, Gap{From: 110 + 10*n, To: 112 + 10*n})
	}
	for range 3 {
		b := NewBook(128)
		b.Resume(at)
		ps := b.Positions()
		if len(ps) != 1 || !slices.Equal(ps[0].Gaps, at.Gaps) || ps[0].Last != at.Last {
			t.Fatalf("of 100 gaps behind number 100 a later book is told %+v", ps)
		}
		at = ps[0]
	}
	b := NewBook(128)
	b.Resume(at)
	post(b, 2000)
	if f := sheet(t, b); f.Missing != 1899-300 {
		t.Errorf("%d missing, 300 of the 1899 have a name already", f.Missing)
	}
}
