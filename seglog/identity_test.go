package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

func TestIdentityOfALog(t *testing.T) {
	d := fault.New()
	if id, err := Identity(faulty{d}); err != nil || id != [16]byte{} {
		t.Errorf("an empty directory has %x, %v", id, err)
	}
	l := open(t, small(faulty{d}, SyncAlways))
	id := l.Identity()
	appendUpTo(t, l, 400)
	live := l.NewReader(0)
	if live.Identity() != id || id == [16]byte{} {
		t.Errorf("the reader says %x, the log %x", live.Identity(), id)
	}
	live.Close()
	closeLog(t, l)
	r := NewReader(faulty{d}, 0)
	if _, err := r.Next(); err != nil || r.Identity() != id {
		t.Errorf("%v; the reader says %x, the log %x", err, r.Identity(), id)
	}
	r.Close()
	for _, h := range headsOf(t, d) {
		if h.log != id {
			t.Errorf("%s has %x, the log %x", segmentName(h.name), h.log, id)
		}
	}
	cfg := small(faulty{d}, SyncAlways)
	cfg.Identity = id
	closeLog(t, open(t, cfg))
	cfg.Identity[3]++
	if _, err := Open(cfg); !errors.Is(err, ErrOther) {
		t.Errorf("opened as %x, the log %x gives %v", cfg.Identity, id, err)
	}
	fresh := fault.New()
	cfg.FS = faulty{fresh}
	l = open(t, cfg)
	if l.Identity() != cfg.Identity || l.Identity() == id {
		t.Errorf("the new log has %x, want %x", l.Identity(), cfg.Identity)
	}
	closeLog(t, l)
}

// A segment of another log came into the directory: in the place of one, behind all, before all, or
// as the newest. It is named, never read as a part of the log, never appended to, and a repair sets
// it aside as it is.
func TestSegmentOfAnotherLog(t *testing.T) {
	const records = 900
	for name, c := range map[string]struct {
		place func(bases []uint64) (own, foreign int) // indexes; own -1: the foreign one has a place of its own
		index bool                                    // its index comes with it
		lost  bool
	}{
		"middle":           {place: func([]uint64) (int, int) { return 1, 1 }, lost: true},
		"middle and index": {place: func([]uint64) (int, int) { return 1, 1 }, index: true, lost: true},
		"first":            {place: func([]uint64) (int, int) { return 0, 0 }, lost: true},
		"newest":           {place: func(b []uint64) (int, int) { return len(b) - 1, len(b) - 1 }, lost: true},
		"newest and index": {
			place: func(b []uint64) (int, int) { return len(b) - 1, len(b) - 1 }, index: true,
			lost: true,
		},
		"behind":           {place: func(b []uint64) (int, int) { return -1, len(b) }},
		"behind and index": {place: func(b []uint64) (int, int) { return -1, len(b) }, index: true},
	} {
		t.Run(name, func(t *testing.T) {
			d, other := severalSegments(t, records, true), severalSegments(t, 2*records, true)
			bases, theirs := segmentsOf(t, d), segmentsOf(t, other)
			_, foreign := c.place(bases)
			guest := segmentName(theirs[foreign])
			if bases := append(bases, theirs[foreign]); theirs[foreign] != bases[foreign] {
				t.Fatalf("the logs have segments of different extent: %v, %v", bases, theirs)
			}
			put(t, d, guest, other.Bytes(guest))
			if c.index {
				put(t, d, indexName(theirs[foreign]), other.Bytes(indexName(theirs[foreign])))
			}
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			says := func(what, err string) {
				t.Helper()
				if !strings.Contains(err, guest) || !strings.Contains(err, "another log") {
					t.Errorf("%s gives %s", what, err)
				}
			}
			_, err := Open(small(faulty{d}, SyncAlways))
			says("Open", err.Error())
			s, err := Verify(faulty{d})
			if err != nil || s.Clean() {
				t.Fatalf("Verify: %+v, %v", s, err)
			}
			says("Verify", fmt.Sprint(s.Problems))
			if foreign > 0 {
				r := NewReader(faulty{d}, 0)
				for err = nil; err == nil; {
					_, err = r.Next()
				}
				says("Next", err.Error())
				r.Close()
			}
			if _, err := Repair(faulty{d}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(d.Bytes(guest+damagedSuffix), other.Bytes(guest)) {
				t.Error("the foreign segment was not set aside as it was")
			}
			if s, err := Verify(faulty{d}); err != nil || !s.Clean() || !c.lost && s.Records != records {
				t.Errorf("Verify after the repair: %+v, %v", s, err)
			}
			l, err := Open(small(faulty{d}, SyncAlways))
			if err != nil {
				t.Fatal(err)
			}
			if next := l.Position().Next; next != records+1 && (!c.index || next < records) {
				t.Errorf("record %d is next; %d were there", next, records)
			}
			closeLog(t, l)
		})
	}
}

// Verify reads each segment once, and learns which log it is as it goes. A foreign segment that it
// cannot read, or passes over, is named all the same: one that begins within another, or says by
// its header that it begins elsewhere.
func TestForeignSegmentThatIsNotReadIsNamed(t *testing.T) {
	d := severalSegments(t, 400, true)
	bases := segmentsOf(t, d)
	for what, stray := range map[string]header{
		"within":       {version: version, id: 1, base: bases[1] + 7, salt: 5, log: [16]byte{1, 2, 3}},
		"another name": {version: version, id: 1, base: bases[1] + 8, salt: 5, log: [16]byte{1, 2, 3}},
	} {
		d, at := d.Copy(), bases[1]+7
		put(t, d, segmentName(at), stray.encode())
		s, err := Verify(faulty{d})
		if err != nil || len(s.Problems) != 1 || s.Problems[0].Segment != segmentName(at) ||
			!strings.Contains(s.Problems[0].What, "another log") || s.Records != 400 {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
}

// A log leaves a segment of another log alone that stands where its own next one would go, with or
// without records.
func TestSegmentOfAnotherLogIsNotReplaced(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	appendUpTo(t, l, 10)
	h := header{version: version, id: 9, base: 11, log: [16]byte{1}}
	put(t, d, segmentName(11), h.encode())
	if err := l.vacant(segmentName(11)); !errors.Is(err, errForeign) {
		t.Errorf("one of another log: %v", err)
	}
	h.log = l.Identity()
	put(t, d, segmentName(11), h.encode())
	if err := l.vacant(segmentName(11)); err != nil {
		t.Errorf("its own: %v", err)
	}
	closeLog(t, l)
}

// What the hash of a segment covers: the header, and each commit frame with the CRCs of its batch.
func TestHeadHash(t *testing.T) {
	pristine := fault.New()
	for last := uint64(50); last <= 400; last += 50 { // with marks of clean ends in it
		l := open(t, small(faulty{pristine}, SyncAlways))
		appendUpTo(t, l, last)
		closeLog(t, l)
	}
	heads := headsOf(t, pristine)
	for i, h := range heads[1:] { // by hand
		b := pristine.Bytes(segmentName(heads[i].name))
		c := chain{chainFrom(heads[i].header).state}
		for off := headerBytes; off < len(b); {
			f, ok := decodeFrame(b[off:], heads[i].salt)
			if !ok {
				break
			}
			if f.kind == kindCommit && binary.LittleEndian.Uint64(f.data) > 0 {
				c.add(b[off : off+f.size])
			}
			off += f.size
		}
		if want := c.sum(heads[i].base); h.prior != want {
			t.Errorf("%s: %x, want %x", segmentName(h.base), h.prior, want)
		}
	}
	if heads[0].prior.kind != hashNone {
		t.Errorf("the first segment has %+v", heads[0].prior)
	}
	// Each of these is whole in itself.
	for name, harm := range map[string]func(b []byte, h *header){
		"header":        func(_ []byte, h *header) { h.created++ },
		"prior":         func(_ []byte, h *header) { h.prior.hash[5]++ },
		"record":        func(b []byte, h *header) { b[headerBytes+frameHeader+3]++; reseal(b, h.salt) },
		"time":          func(b []byte, h *header) { b[headerBytes+16]++; reseal(b, h.salt) },
		"stream":        func(b []byte, h *header) { b[headerBytes+24]++; reseal(b, h.salt) },
		"durable known": func(b []byte, h *header) { b[secondCommit(b, h.salt)+frameHeader+16]--; reseal(b, h.salt) },
	} {
		t.Run(name, func(t *testing.T) {
			d := pristine.Copy()
			h := heads[1].header
			b := d.Bytes(segmentName(h.base))
			harm(b, &h)
			copy(b, h.encode())
			put(t, d, segmentName(h.base), b)
			s, err := Verify(faulty{d})
			found := false
			for _, p := range s.Problems {
				found = found || p.Segment == segmentName(h.base) && strings.Contains(p.What, "hash")
			}
			if name == "prior" { // of the segment before, and of this one
				found = found && s.Problems[0].Segment == segmentName(heads[0].base)
			}
			if err != nil || !found || s.Records != 400 {
				t.Fatalf("Verify: %+v, %v", s, err)
			}
			if _, err := Repair(faulty{d}); err != nil {
				t.Fatal(err)
			}
			if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 || s.Records != 400 {
				t.Errorf("Verify after the repair: %+v, %v", s, err)
			}
			if !bytes.Equal(d.Bytes(segmentName(h.base)+damagedSuffix), b) {
				t.Error("what was found is not kept")
			}
		})
	}
}

// reseal gives the frames of a segment right CRCs and digests, as somebody does who knows how.
func reseal(b []byte, salt uint32) {
	batch := headerBytes
	for off := headerBytes; off+frameHeader <= len(b); {
		size := frameWants(b[off:])
		f := b[off : off+size]
		if resalt(f, salt); f[28] == kindCommit {
			digest := digestOf(b[batch:off])
			for i := range 8 {
				f[frameHeader+24+i] = byte(digest >> (8 * i))
			}
			resalt(f, salt)
			batch = off + size
		}
		if off += size; frameWants(b[off:]) == 0 {
			return
		}
	}
}

func secondCommit(b []byte, salt uint32) int {
	seen := 0
	for off := headerBytes; ; {
		f, ok := decodeFrame(b[off:], salt)
		if !ok {
			return 0
		}
		if f.kind == kindCommit {
			if seen++; seen == 2 {
				return off
			}
		}
		off += f.size
	}
}

// The digest in a commit frame binds the frames of its batch: one of another batch that is right in
// itself is not taken.
func TestDigestBindsABatch(t *testing.T) {
	d := severalSegments(t, 40, true)
	name := segmentName(1)
	b := d.Bytes(name)
	h, err := decodeHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	b[headerBytes+frameHeader+2]++
	first, _ := decodeFrame(b[headerBytes:], h.salt)
	resalt(b[headerBytes:headerBytes+first.size], h.salt)
	put(t, d, name, b)
	s, err := Verify(faulty{d})
	if err != nil || s.Clean() || s.Problems[0].From != 1 || s.Problems[0].To != 1 {
		t.Errorf("Verify: %+v, %v", s, err)
	}
}
