package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/proof"
)

func namedStream(number uint32) proof.Stream {
	return proof.Stream{Source: fmt.Sprintf("line-%d", number), Frame: "raw"}
}

// keys is a pair for checkpoints.
func keys(t testing.TB, name string) (proof.Signer, proof.Verifier) {
	t.Helper()
	private, public, err := proof.NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := proof.ParseSigner([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	v, err := proof.ParseVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return s, v
}

// heard is what a log that proves itself has told.
type heard struct {
	mu          sync.Mutex
	checkpoints [][]byte
	troubles    []string
}

func (h *heard) proving(sign proof.Signer) Proving {
	return Proving{
		Named: namedStream, Sign: sign,
		OnCheckpoint: func(c []byte) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.checkpoints = append(h.checkpoints, c)
		},
		OnTrouble: func(err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.troubles = append(h.troubles, err.Error())
		},
	}
}

func (h *heard) trouble() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.troubles, "\n")
}

func (h *heard) published() [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.checkpoints)
}

// fillLog appends records of several streams, and a note among them.
func fillLog(t testing.TB, l *Log, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		var err error
		if n%50 == 7 {
			_, err = l.TryAppendDrop(uint32(n%3), int64(n), Drop{From: n, To: n + 1, N: 1, Cause: "overflow"})
		} else {
			_, err = l.AppendAt(uint32(n%3), int64(n), n*100, payload(n))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
}

// allProven waits until every sealed segment has its head, and a checkpoint counts all heads.
func allProven(t testing.TB, l *Log) {
	t.Helper()
	testenv.Until(t, 2*time.Minute, "every sealed segment has its head", func() bool {
		c, _, err := proof.OpenCheckpoint(l.Checkpoint())
		salts := map[uint64]uint32{}
		n, _, headsErr := eachHead(l.cfg.FS, func(_ int64, h proof.Head) { salts[h.First] = h.Salt })
		if len(l.shelf.sealed()) == 0 {
			return true
		}
		for _, s := range l.shelf.sealed() {
			if !has(salts, s) {
				return false
			}
		}
		return err == nil && headsErr == nil && c.Size == n
	})
}

// provenLog is a log of several segments with heads, closed, and what it has told.
func provenLog(t testing.TB, sign proof.Signer) (*fault.Dir, *heard) {
	t.Helper()
	d, h := fault.New(), &heard{}
	cfg := small(faulty{d}, SyncAlways)
	cfg.Proves = true
	l := open(t, cfg)
	l.Prove(h.proving(sign))
	fillLog(t, l, 1, 800)
	allProven(t, l)
	closeLog(t, l)
	return d, h
}

// held verifies a log, and returns what is said of it.
func held(t testing.TB, d *fault.Dir, by Held) (Summary, Proven, string) {
	t.Helper()
	if by.Named == nil {
		by.Named = namedStream
	}
	s, p, err := VerifyProven(faulty{d}, Extent{}, by)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range s.Problems {
		all = append(all, fmt.Sprintf("%s: %s (%d to %d)", p.Segment, p.What, p.From, p.To))
	}
	return s, p, strings.Join(all, "\n")
}

// Each record of each sealed segment has a proof that holds, and says whose it is; of the newest
// segment it says that there is none yet.
func TestEveryRecordIsProven(t *testing.T) {
	sign, key := keys(t, "test.example/log")
	d, h := provenLog(t, sign)
	bases := segmentsOf(t, d)
	s, p, problems := held(t, d, Held{Keys: []proof.Verifier{key}})
	newest := bases[len(bases)-1]
	if len(s.Problems) > 0 || len(bases) < 4 || p.Segments != len(bases)-1 || p.Heads != int64(len(bases)-1) ||
		p.SignedBy == "" ||
		len(p.Unproven) != 1 || p.Unproven[0] != (Span{newest, s.Last}) {
		t.Fatalf("%d segments, %+v: %s", len(bases), p, problems)
	}
	for seq := uint64(1); seq < newest; seq++ {
		p, err := ProveEntry(faulty{d}, seq, namedStream)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = proof.Parse(p.Marshal()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Check(key); err != nil || p.Entry.Seq != seq ||
			p.Stream.Source != fmt.Sprintf("line-%d", seq%3) {
			t.Fatalf("record %d: %v, of %v", seq, err, p.Stream)
		}
		rec, ok := RecordOf(p.Entry)
		if drop, isDrop := rec.Drop(); !ok || isDrop != (seq%50 == 7) || isDrop && drop.From != seq {
			t.Fatalf("record %d: a drop %v, %v", seq, isDrop, drop)
		} else if !isDrop && (!bytes.Equal(rec.Data, payload(seq)) || rec.Offset != seq*100) {
			t.Fatalf("record %d is %q at %d", seq, rec.Data, rec.Offset)
		}
	}
	for seq, want := range map[uint64]error{
		newest: ErrNotYet, s.Last: ErrNotYet, s.Last + 1: ErrNoRecord,
		0: ErrNoRecord,
	} {
		if _, err := ProveEntry(faulty{d}, seq, namedStream); !errors.Is(err, want) {
			t.Errorf("record %d: %v, want %v", seq, err, want)
		}
	}
	if text := h.trouble(); text != "" {
		t.Error(text)
	}
	for i, c := range h.published() { // each is a part of the last
		if _, _, problems := held(t, d, Held{Keys: []proof.Verifier{key}, Since: c}); problems != "" {
			t.Errorf("checkpoint %d: %s", i, problems)
		}
	}
}

// A log without heads gets them, one of version 1 too: those that it would have had from the start.
func TestHeadsOfOlderLogs(t *testing.T) {
	for name, older := range map[string]*fault.Dir{
		"without": severalSegments(t, 400, true), "killed": severalSegments(t, 400, false), "version 1": oldLog(t),
	} {
		cfg := small(faulty{older}, SyncAlways)
		l := open(t, cfg)
		h := &heard{}
		l.Prove(h.proving(nil))
		allProven(t, l)
		closeLog(t, l)
		if s, p, problems := held(t, older, Held{}); len(s.Problems) > 0 || p.Segments < 2 || h.trouble() != "" {
			t.Errorf("%s: %+v: %s, %s", name, p, problems, h.trouble())
		}
		first := segmentsOf(t, older)[0]
		if _, err := ProveEntry(faulty{older}, first, namedStream); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		was := older.Bytes(headsFile)
		for _, name := range []string{headsFile, checkpointFile} {
			if err := older.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		l = open(t, cfg)
		l.Prove((&heard{}).proving(nil))
		allProven(t, l)
		closeLog(t, l)
		if !bytes.Equal(older.Bytes(headsFile), was) {
			t.Errorf("%s: made anew, the heads are others", name)
		}
	}
}

// Of the segments that are full the newest have all that makes their heads in memory, as long as
// they have none; those that wait for long are read.
func TestHeadsNeedNoReading(t *testing.T) {
	cfg := small(faulty{fault.New()}, SyncAlways)
	cfg.Proves = true
	l := open(t, cfg)
	fillLog(t, l, 1, 800)
	inMemory := func() (n int) {
		for i, s := range l.shelf.sealed() {
			if s.made != nil {
				if n++; i < len(l.shelf.sealed())-proveLate {
					t.Errorf("segment %d of %d is held in memory", i, len(l.shelf.sealed()))
				}
			}
		}
		return n
	}
	if n := inMemory(); n != proveLate {
		t.Errorf("%d segments are held in memory, want %d", n, proveLate)
	}
	l.Prove((&heard{}).proving(nil))
	allProven(t, l)
	if n := inMemory(); n != 0 {
		t.Errorf("%d segments are held in memory that have a head", n)
	}
	closeLog(t, l)
}

// What retention removes keeps its head, and every segment had one before it went.
func TestHeadsOutliveRetention(t *testing.T) {
	d, h := fault.New(), &heard{}
	cfg := small(faulty{d}, SyncAlways)
	cfg.KeepBytes = 4 * cfg.SegmentBytes
	l := open(t, cfg)
	l.Prove(h.proving(nil))
	fillLog(t, l, 1, 2000)
	testenv.Until(t, 2*time.Minute, "retention has been at work",
		func() bool { return l.Position().First > 1000 && !l.shelf.overdue() })
	allProven(t, l)
	first := l.Position().First
	closeLog(t, l)
	s, p, problems := held(t, d, Held{})
	if len(s.Problems) > 0 || p.Heads < 2*int64(p.Segments) || h.trouble() != "" {
		t.Errorf("%+v: %s; %s", p, problems, h.trouble())
	}
	next := uint64(1)
	if _, _, err := eachHead(faulty{d}, func(leaf int64, h proof.Head) {
		if h.First != next {
			t.Errorf("leaf %d begins with %d, want %d", leaf, h.First, next)
		}
		next = h.Last + 1
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := ProveEntry(faulty{d}, first-1, namedStream); !errors.Is(err, ErrNoRecord) {
		t.Errorf("of a record that was removed: %v", err)
	}
	if _, err := ProveEntry(faulty{d}, first, namedStream); err != nil {
		t.Error(err)
	}
}

// What retention may remove at an opening waits for Prove, where Config.Proves says that it comes.
func TestRetentionWaitsForProve(t *testing.T) {
	d, h := fault.New(), &heard{}
	cfg := small(faulty{d}, SyncAlways)
	l := open(t, cfg)
	fillLog(t, l, 1, 800)
	closeLog(t, l)
	cfg.KeepBytes, cfg.Proves = 3*cfg.SegmentBytes, true
	l = open(t, cfg)
	if first := l.Position().First; first != 1 || l.shelf.overdue() {
		t.Errorf("it begins with %d, and retention is about to remove some: %v", first, l.shelf.overdue())
	}
	l.Prove(h.proving(nil))
	testenv.Until(t, 2*time.Minute, "retention has been at work",
		func() bool { return l.Position().First > 1 && !l.shelf.overdue() })
	allProven(t, l)
	closeLog(t, l)
	first := proof.Head{}
	if _, _, err := eachHead(faulty{d}, func(leaf int64, h proof.Head) {
		if leaf == 0 {
			first = h
		}
	}); err != nil || first.First != 1 {
		t.Errorf("%v: the first head is of %d to %d", err, first.First, first.Last)
	}
}

// A file of heads that is damaged, torn or gone is made anew from the segments, and is what it was;
// where they are gone, too, it says so, and signs nothing against what it has signed.
func TestHeadsAreMadeAnew(t *testing.T) {
	sign, key := keys(t, "test.example/log")
	pristine, h := provenLog(t, sign)
	whole := pristine.Bytes(headsFile)
	older := h.published()[len(h.published())-1]
	for name, c := range map[string]struct {
		harm          func(d *fault.Dir)
		trouble, lost string
	}{
		"torn": {harm: func(d *fault.Dir) { put(t, d, headsFile, whole[:len(whole)-40]) }},
		"torn, with zeros": {harm: func(d *fault.Dir) {
			put(t, d, headsFile, append(bytes.Clone(whole[:len(whole)-40]), make([]byte, 512)...))
		}},
		"one more, torn": {harm: func(d *fault.Dir) {
			put(t, d, headsFile, append(bytes.Clone(whole), whole[:77]...))
		}},
		"damaged": {harm: func(d *fault.Dir) {
			if err := d.Flip(headsFile, proof.HeadBytes+1, 1); err != nil {
				t.Fatal(err)
			}
		}, trouble: "heads is damaged at 128"},
		"gone": {harm: func(d *fault.Dir) {
			if err := d.Remove(headsFile); err != nil {
				t.Fatal(err)
			}
		}},
		"gone, and a segment": {harm: func(d *fault.Dir) {
			first := segmentsOf(t, d)[0]
			for _, name := range []string{headsFile, segmentName(first), indexName(first)} {
				if err := d.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}, trouble: "are not those of its checkpoint", lost: "heads: the"},
		"of another log": {harm: func(d *fault.Dir) {
			other, _ := provenLog(t, nil)
			put(t, d, headsFile, other.Bytes(headsFile))
		}, trouble: "are of another log, and were set aside"},
	} {
		t.Run(name, func(t *testing.T) {
			d, h := pristine.Copy(), &heard{}
			c.harm(d)
			l := openHarmed(t, small(faulty{d}, SyncAlways))
			l.Prove(h.proving(sign))
			if c.lost == "" {
				allProven(t, l)
			} else {
				testenv.Until(t, time.Minute, "it says what is lost", func() bool { return h.trouble() != "" })
			}
			fillLog(t, l, 801, 1000)
			closeLog(t, l)
			if got := h.trouble(); (got == "") != (c.trouble == "") || !strings.Contains(got, c.trouble) {
				t.Errorf("it says %q, want %q", got, c.trouble)
			}
			s, _, problems := held(t, d, Held{Keys: []proof.Verifier{key}, Since: older})
			if c.lost != "" {
				if s.Clean() || !strings.Contains(problems, c.lost) {
					t.Errorf("%s\nwant %q", problems, c.lost)
				}
				if len(h.published()) > 0 {
					t.Errorf("it has signed against what it had signed: %s", h.published()[0])
				}
				return
			}
			if len(s.Problems) > 0 || !bytes.Equal(d.Bytes(headsFile)[:len(whole)], whole) {
				t.Errorf("the heads are others: %s", problems)
			}
		})
	}
}

// BenchmarkSeal is what the head of a sealed segment costs: it is read back and hashed. Verify
// alone reads and checks the same bytes.
func BenchmarkSeal(b *testing.B) {
	l := open(b, Config{FS: benchFolder(b), Sync: SyncNever, MinFree: -1})
	data := make([]byte, 136)
	for len(l.shelf.sealed()) == 0 {
		for i := range 1000 {
			if _, err := l.AppendAt(uint32(i/16%8), int64(i), uint64(i), data); err != nil {
				b.Fatal(err)
			}
		}
	}
	o := l.shelf.sealed()[0]
	for name, made := range map[string]*proof.Segment{"head": {}, "read": nil} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(o.bytes)
			for range b.N {
				s := &Summary{made: made}
				if err := s.segment(l.cfg.FS, o.base, l.behind(o.base)); err != nil || len(s.Problems) > 0 {
					b.Fatal(err, s.Problems)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(o.last-o.base+1), "ns/record")
		})
	}
	closeLog(b, l)
}

func benchFolder(b *testing.B) FS {
	b.Helper()
	dir, err := Dir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return dir
}

// TestLogGoesOnBehindItsHeads removes the newest segment of a proven log. The one before it has a
// head: nothing is added to it any more, and all that it holds can still be proven.
func TestLogGoesOnBehindItsHeads(t *testing.T) {
	d, _ := provenLog(t, nil)
	bases, err := segmentBases(faulty{d})
	if err != nil || len(bases) < 3 {
		t.Fatalf("%d segments, %v", len(bases), err)
	}
	newest := bases[len(bases)-1]
	if err := d.Remove(segmentName(newest)); err != nil {
		t.Fatal(err)
	}
	cfg := small(faulty{d}, SyncAlways)
	cfg.Proves, cfg.Expect = true, Extent{First: 1, Last: 800, End: 800}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if m := l.Recovered().Missing; len(m) != 1 || m[0].From != newest || m[0].To != 800 {
		t.Errorf("opening reports as missing %v, want %d to 800", m, newest)
	}
	l.Prove((&heard{}).proving(nil))
	fillLog(t, l, 801, 1600)
	allProven(t, l)
	closeLog(t, l)
	if s, p, said := held(t, d, Held{}); !s.Clean() || len(p.Unproven) > 1 {
		t.Errorf("it is held against its heads that\n%s, unproven %v", said, p.Unproven)
	}
	for _, seq := range []uint64{1, newest - 1, 801} {
		if _, err := ProveEntry(faulty{d}, seq, namedStream); err != nil {
			t.Errorf("record %d: %v", seq, err)
		}
	}
	r := NewReader(faulty{d}, 0)
	defer r.Close()
	r.Notes()
	next := uint64(1)
	for {
		rec, err := r.Next()
		if gap := (*GapError)(nil); errors.As(err, &gap) && gap.From == next && gap.From == newest && gap.To == 800 {
			next = gap.To + 1
			continue
		}
		if err == io.EOF {
			break
		}
		if err != nil || rec.Seq != next {
			t.Fatalf("%+v, %v; want record %d", rec, err, next)
		}
		next++
	}
	if next != 1601 {
		t.Errorf("reading ends before %d", next)
	}
}
