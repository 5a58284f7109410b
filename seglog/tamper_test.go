package seglog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/proof"
)

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
