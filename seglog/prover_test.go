package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// rewrite writes the frames of a segment anew, as a forger would who knows the format: all CRCs and
// digests are right.
func rewrite(t *testing.T, d *fault.Dir, base uint64, change func(frames []rawFrame) []rawFrame) {
	t.Helper()
	sc, size := scannerOf(t, d, base)
	var frames []rawFrame
	if err := sc.search(headerBytes, size, func(_ int64, fr rawFrame) bool {
		if fr.kind != kindCommit {
			fr.data = bytes.Clone(fr.data)
			frames = append(frames, fr)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	frames = change(frames)
	var b []byte
	digest := uint64(0)
	for _, fr := range frames {
		b = appendFrame(slices.Grow(b, frameLen(len(fr.data))), sc.salt, fr.kind, fr.stream, fr.seq, fr.time, fr.data)
	}
	digest = digestOf(b)
	last := frames[len(frames)-1]
	b = appendCommit(slices.Grow(b, commitBytes), sc.header, last.seq, last.time, len(frames), len(b), last.seq, digest)
	whole := append(sc.encode(), b...)
	put(t, d, segmentName(base), append(whole, make([]byte, max(0, int(size)-len(whole)))...))
	rechain(t, d)
}

// scannerOf reads a segment from its beginning. size is that of its file.
func scannerOf(t *testing.T, d *fault.Dir, base uint64) (sc *scanner, size int64) {
	t.Helper()
	f, err := faulty{d}.Open(segmentName(base))
	if err != nil {
		t.Fatal(err)
	}
	if sc, err = newScanner(f, base); err != nil {
		t.Fatal(err)
	}
	if size, err = f.Size(); err != nil {
		t.Fatal(err)
	}
	return sc, size
}

// rechain makes the hashes in all headers right again.
func rechain(t *testing.T, d *fault.Dir) {
	t.Helper()
	var was prior
	for _, base := range segmentsOf(t, d) {
		b := d.Bytes(segmentName(base))
		h, err := decodeHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if h.prior = was; was.kind == hashNone {
			h.prior = prior{}
		}
		copy(b, h.encode())
		put(t, d, segmentName(base), b)
		sc, _ := scannerOf(t, d, base)
		c := chainFrom(h)
		for {
			batch, err := sc.batch()
			if err != nil {
				break
			}
			c.batch(batch)
		}
		was = c.sum(base)
	}
}

// Whatever is changed in a log whose CRCs are right is found by its heads, and named.
func TestTamperingIsNamed(t *testing.T) {
	sign, key := keys(t, "test.example/log")
	pristine, h := provenLog(t, sign)
	bases := segmentsOf(t, pristine)
	published := h.published()
	older := published[len(published)/2]
	_, stranger := keys(t, "test.example/log")
	const entryOf = 5
	tampering := map[string]struct {
		harm   func(d *fault.Dir)
		by     Held
		want   string // what is said
		silent bool   // without keys nothing tells
	}{
		"record changed": {harm: func(d *fault.Dir) {
			rewrite(t, d, bases[1],
				func(f []rawFrame) []rawFrame { f[entryOf].data[len(f[entryOf].data)-1]++; return f })
		}, want: segmentName(bases[1]) + ": it is not what its head, leaf 1, says: a record was changed"},
		"time changed": {harm: func(d *fault.Dir) {
			rewrite(t, d, bases[1], func(f []rawFrame) []rawFrame { f[entryOf].time--; return f })
		}, want: "leaf 1, says: a record was changed"},
		"stream changed": {harm: func(d *fault.Dir) {
			rewrite(t, d, bases[1], func(f []rawFrame) []rawFrame { f[entryOf].stream ^= 1; return f })
		}, want: "leaf 1, says: a record was changed"},
		"records exchanged": {harm: func(d *fault.Dir) {
			rewrite(t, d, bases[1], func(f []rawFrame) []rawFrame {
				f[3].data, f[4].data, f[3].time, f[4].time = f[4].data, f[3].data, f[4].time, f[3].time
				return f
			})
		}, want: "a record was changed, or put in another's place"},
		"record removed, a hole in its place": {harm: func(d *fault.Dir) {
			rewrite(t, d, bases[1], func(f []rawFrame) []rawFrame {
				f[4].kind, f[4].stream, f[4].data = kindHole, 0, binary.LittleEndian.AppendUint64(nil, f[4].seq)
				f[4].data = append(f[4].data, make([]byte, 8)...)
				return f
			})
		}, want: "leaf 1, says: that has"},
		"segment removed": {harm: func(d *fault.Dir) {
			for _, name := range []string{segmentName(bases[1]), indexName(bases[1])} {
				if err := d.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			rechain(t, d)
		}, want: fmt.Sprintf("(%d to %d)", bases[1], bases[2]-1)},
		"newest segments removed": {harm: func(d *fault.Dir) {
			_ = d.Remove(durableFile)
			for _, base := range bases[len(bases)-2:] {
				for _, name := range []string{segmentName(base), indexName(base)} {
					if err := d.Remove(name); err != nil && base != bases[len(bases)-1] {
						t.Fatal(err)
					}
				}
			}
			_ = d.Remove(indexName(bases[len(bases)-3]))
		}, want: segmentName(bases[len(bases)-2]) + ": it is gone; its head, leaf"},
		"segment exchanged for one of another file": {harm: func(d *fault.Dir) {
			b := d.Bytes(segmentName(bases[1]))
			h, err := decodeHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			h.salt++
			out := h.encode()
			for off := headerBytes; off < len(b); {
				f, ok := decodeFrame(b[off:], h.salt-1)
				if !ok {
					break
				}
				one := bytes.Clone(b[off : off+f.size])
				binary.LittleEndian.PutUint32(one[4:], frameCRC(one, h.salt))
				out, off = append(out, one...), off+f.size
			}
			put(t, d, segmentName(bases[1]), append(out, make([]byte, len(b)-len(out))...))
			redigest(t, d, bases[1])
			rechain(t, d)
		}, want: "it was exchanged"},
		"source renamed": {by: Held{Named: func(n uint32) proof.Stream {
			s := namedStream(n)
			s.Source = strings.ReplaceAll(s.Source, "line-2", "line-9")
			return s
		}}, want: "the table of streams names the sources of its 3 streams otherwise"},
		"head changed": {harm: func(d *fault.Dir) {
			b := d.Bytes(headsFile)
			h, _ := proof.DecodeHead(b[proof.HeadBytes:], 1)
			h.PagesRoot[0]++
			copy(b[proof.HeadBytes:], h.Encode(1))
			put(t, d, headsFile, b)
		}, want: "heads: they are not those that the checkpoint counts"},
		"head removed": {harm: func(d *fault.Dir) {
			b := d.Bytes(headsFile)
			put(t, d, headsFile, b[:len(b)-proof.HeadBytes])
		}, want: "heads: the checkpoint counts"},
		"heads damaged": {harm: func(d *fault.Dir) {
			if err := d.Flip(headsFile, proof.HeadBytes+60, 3); err != nil {
				t.Fatal(err)
			}
		}, want: "heads: it is damaged at 128"},
		"checkpoint changed": {harm: func(d *fault.Dir) {
			b := d.Bytes(checkpointFile)
			b[bytes.IndexByte(b, '\n')+1]++ // its size
			put(t, d, checkpointFile, b)
		}, by: Held{Keys: []proof.Verifier{key}}, want: "the signature of the checkpoint is not that of the key"},
		"signed by a stranger": {
			by:   Held{Keys: []proof.Verifier{stranger}},
			want: "checkpoint: the signature of the checkpoint is not that of the key",
		},
		"checkpoint removed": {harm: func(d *fault.Dir) {
			if err := d.Remove(checkpointFile); err != nil {
				t.Fatal(err)
			}
		}, by: Held{Keys: []proof.Verifier{key}}, want: "checkpoint: there is none"},
		"heads and checkpoint set back behind a published one": {
			harm: func(d *fault.Dir) {
				put(t, d, checkpointFile, published[0])
				put(t, d, headsFile, d.Bytes(headsFile)[:proof.HeadBytes])
			}, by: Held{Keys: []proof.Verifier{key}, Since: older},
			want: "heads: the log was set back: the older checkpoint counts",
		},
		"written anew, and signed again": {harm: func(d *fault.Dir) {
			rewrite(t, d, bases[0], func(f []rawFrame) []rawFrame { f[entryOf].time--; return f })
			for _, name := range []string{headsFile, checkpointFile} {
				if err := d.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			l := openHarmed(t, small(faulty{d}, SyncAlways))
			l.Prove((&heard{}).proving(sign))
			allProven(t, l)
			closeLog(t, l)
		}, by: Held{Keys: []proof.Verifier{key}, Since: older}, want: "heads: the log was written anew: its first"},
	}
	for name, c := range tampering {
		t.Run(name, func(t *testing.T) {
			d := pristine.Copy()
			if c.harm != nil {
				c.harm(d)
			}
			s, _, problems := held(t, d, c.by)
			if s.Clean() || !strings.Contains(problems, c.want) {
				t.Errorf("clean %v; it says\n%s\nwant %q", s.Clean(), problems, c.want)
			}
		})
	}
	if s, _, problems := held(t, pristine, Held{Keys: []proof.Verifier{key}, Since: older}); len(s.Problems) > 0 {
		t.Errorf("of the log that nobody touched: %s", problems)
	}
}

// redigest makes the digests of a segment's batches right again.
func redigest(t *testing.T, d *fault.Dir, base uint64) {
	t.Helper()
	b := d.Bytes(segmentName(base))
	h, err := decodeHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	for off, digest := headerBytes, uint64(0); off < len(b); {
		f, ok := decodeFrame(b[off:], h.salt)
		if !ok {
			break
		}
		if f.kind == kindCommit {
			binary.LittleEndian.PutUint64(b[off+frameHeader+24:], digest)
			binary.LittleEndian.PutUint32(b[off+4:], frameCRC(b[off:off+f.size], h.salt))
			digest = 0
		} else {
			digest = fold(digest, f.crc)
		}
		off += f.size
	}
	put(t, d, segmentName(base), b)
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

// A segment that a repair wrote anew is named as such, has no proof until the log is opened, and
// then a head of its own behind the old one. Who asks whether the log is what it was is told that
// it is not.
func TestRepairedSegmentIsNamed(t *testing.T) {
	sign, key := keys(t, "test.example/log")
	d, h := provenLog(t, sign)
	bases := segmentsOf(t, d)
	if err := d.Flip(segmentName(bases[1]), headerBytes+2000, 1); err != nil {
		t.Fatal(err)
	}
	if s, _, problems := held(t, d, Held{}); s.Clean() || strings.Contains(problems, "leaf") {
		t.Errorf("damaged: clean %v: %s; want the damage, once", s.Clean(), problems)
	}
	if _, err := Repair(faulty{d}); err != nil {
		t.Fatal(err)
	}
	s, p, problems := held(t, d, Held{})
	if !s.Clean() || !strings.Contains(problems, "a repair wrote it anew after its head, leaf 1") ||
		len(p.Unproven) != 2 {
		t.Errorf("repaired: clean %v, %+v: %s", s.Clean(), p, problems)
	}
	if _, err := ProveEntry(faulty{d}, bases[1], namedStream); err == nil {
		t.Error("there is a proof of what a repair wrote, by the old head")
	}
	l := openHarmed(t, small(faulty{d}, SyncAlways))
	l.Prove(h.proving(sign))
	allProven(t, l)
	closeLog(t, l)
	want := fmt.Sprintf("written anew after its head, leaf 1, was made, of %d entries: leaf %d", bases[2]-bases[1],
		len(bases)-1)
	if s, _, problems := held(t, d, Held{}); !s.Clean() || !strings.Contains(problems, want) {
		t.Errorf("opened again: clean %v: %s; want %q", s.Clean(), problems, want)
	}
	if s, _, _ := held(t, d, Held{Keys: []proof.Verifier{key}}); s.Clean() {
		t.Error("who asks by a key is not told")
	}
	if s, _, _ := held(t, d, Held{Since: h.published()[0]}); s.Clean() {
		t.Error("who asks by an older checkpoint is not told")
	}
	last := bases[2] - 1
	if _, err := ProveEntry(faulty{d}, last, namedStream); err != nil {
		t.Errorf("of what was saved: %v", err)
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

// cutter takes the state that a power cut leaves, before each call that makes heads and
// checkpoints.
type cutter struct {
	faulty
	seed   uint64
	on     *atomic.Bool
	taken  func(*fault.Dir)
	stolen *atomic.Int64
}

func (c cutter) cut() {
	if c.on.Load() {
		c.taken(c.Crash(c.seed + uint64(c.stolen.Add(1))))
	}
}

func isProof(name string) bool {
	return strings.HasPrefix(name, headsFile) || strings.HasPrefix(name, checkpointFile)
}

func (c cutter) Create(name string) (File, error) {
	f, err := c.faulty.Create(name)
	return c.file(name, f, err)
}

func (c cutter) Open(name string) (File, error) {
	f, err := c.faulty.Open(name)
	return c.file(name, f, err)
}

func (c cutter) file(name string, f File, err error) (File, error) {
	if err != nil || !isProof(name) {
		return f, err
	}
	c.cut()
	return cutFile{f, c}, nil
}

func (c cutter) Rename(from, to string) error {
	if isProof(from) {
		c.cut()
		defer c.cut()
	}
	return c.faulty.Rename(from, to)
}

func (c cutter) Sync() error {
	c.cut()
	return c.faulty.Sync()
}

type cutFile struct {
	File
	c cutter
}

func (f cutFile) WriteAt(b []byte, off int64) (int, error) {
	f.c.cut()
	if half := len(b) / 2; half > 0 { // and in the middle
		if n, err := f.File.WriteAt(b[:half], off); err != nil {
			return n, err
		}
		f.c.cut()
		n, err := f.File.WriteAt(b[half:], off+int64(half))
		return half + n, err
	}
	return f.File.WriteAt(b, off)
}

func (f cutFile) Sync() error {
	f.c.cut()
	defer f.c.cut()
	return f.File.Sync()
}

// Wherever the power is cut while heads and checkpoints are made, the next start makes the same
// heads, and no checkpoint that was told before is gone or contradicted.
func TestPowerCutWhileProving(t *testing.T) {
	for name, keep := range map[string]int64{"all is kept": 0, "retention at work": 4} {
		t.Run(name, func(t *testing.T) { cutWhileProving(t, keep) })
	}
}

// cutWhileProving cuts the power while a log proves itself that keeps so many segments; 0: all.
func cutWhileProving(t *testing.T, keep int64) {
	sign, key := keys(t, "test.example/log")
	type state struct {
		dir  *fault.Dir
		told [][]byte
	}
	var mu sync.Mutex
	var states []state
	h := &heard{}
	d := fault.New()
	c := cutter{faulty: faulty{d}, seed: testenv.Seed(t), on: &atomic.Bool{}, stolen: &atomic.Int64{}}
	c.taken = func(d *fault.Dir) {
		told := h.published()
		mu.Lock()
		defer mu.Unlock()
		states = append(states, state{d, told})
	}
	cfg := small(c, SyncAlways)
	cfg.KeepBytes, cfg.Proves = keep*cfg.SegmentBytes, true
	l := open(t, cfg)
	c.on.Store(true)
	l.Prove(h.proving(sign))
	fillLog(t, l, 1, 500)
	allProven(t, l)
	c.on.Store(false)
	fillLog(t, l, 501, 520)
	closeLog(t, l)
	whole := d.Bytes(headsFile)
	if len(states) < 40 {
		t.Fatalf("%d cuts", len(states))
	}
	rng := rand.New(rand.NewPCG(c.seed, 3))
	rng.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
	for i, s := range states[:min(len(states), 120)] {
		again := &heard{}
		cfg.FS = faulty{s.dir}
		l := openHarmed(t, cfg)
		l.Prove(again.proving(sign))
		allProven(t, l)
		closeLog(t, l)
		if got := s.dir.Bytes(headsFile); !bytes.HasPrefix(whole, got) {
			t.Fatalf("cut %d: the heads are others", i)
		}
		if again.trouble() != "" {
			t.Errorf("cut %d: %s", i, again.trouble())
		}
		for _, told := range s.told {
			if _, _, problems := held(t, s.dir, Held{Keys: []proof.Verifier{key}, Since: told}); problems != "" {
				t.Fatalf("cut %d: %s", i, problems)
			}
		}
	}
}

// A head whose sync has failed is shown by the kernel, and may not be on the disk: the next opening
// writes it once more before a checkpoint counts it.
func TestHeadAfterAFailedSync(t *testing.T) {
	d, h := fault.New(), &heard{}
	var fails atomic.Bool
	fails.Store(true)
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if fails.Load() && op == fault.OpSync && name == headsFile {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	l := open(t, small(faulty{d}, SyncAlways))
	l.Prove(h.proving(nil))
	fillLog(t, l, 1, 200)
	testenv.Until(t, time.Minute, "it says that it stops",
		func() bool { return strings.Contains(h.trouble(), "sync failed") })
	closeLog(t, l)
	fails.Store(false)
	if len(h.published()) > 0 {
		t.Error("a checkpoint counts a head that is not synced")
	}
	l = open(t, small(faulty{d}, SyncAlways))
	l.Prove((&heard{}).proving(nil))
	allProven(t, l)
	want := d.Bytes(headsFile)
	for seed := range uint64(30) {
		if got := d.Crash(seed).Bytes(headsFile); !bytes.Equal(got, want) {
			t.Fatalf("cut %d: %d bytes of heads are left of %d, or others", seed, len(got), len(want))
		}
	}
	closeLog(t, l)
}

// A disk that refuses heads keeps nobody from recording, nor retention from its work; the heads
// come once it takes them, but for what retention removed, which is named.
func TestHeadsThatCannotBeWritten(t *testing.T) {
	d, h := fault.New(), &heard{}
	var full atomic.Bool
	full.Store(true)
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if full.Load() && op == fault.OpWrite && isProof(name) {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	cfg := small(faulty{d}, SyncAlways)
	cfg.KeepBytes = 4 * cfg.SegmentBytes
	l := open(t, cfg)
	l.Prove(h.proving(nil))
	fillLog(t, l, 1, 1500)
	testenv.Until(t, 2*time.Minute, "retention goes on without heads", func() bool { return l.Position().First > 500 })
	if !strings.Contains(h.trouble(), "write heads") {
		t.Errorf("it says %q", h.trouble())
	}
	full.Store(false)
	fillLog(t, l, 1501, 1700)
	allProven(t, l)
	closeLog(t, l)
	s, p, problems := held(t, d, Held{})
	for _, line := range strings.Split(problems, "\n") { // retention may have gone on until the first one was written
		if line != "" && !strings.Contains(line, "there is no head of these") {
			t.Error(line)
		}
	}
	if !s.Clean() || p.Segments == 0 {
		t.Errorf("%+v", p)
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
