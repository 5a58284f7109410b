package seglog

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// oldLog is a log of 170 records that the last program of version 1 wrote: three segments of 16
// KiB, closed in order, twice.
func oldLog(t *testing.T) *fault.Dir {
	t.Helper()
	z, err := zip.OpenReader("testdata/v1.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	d := fault.New()
	for _, f := range z.File {
		from, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, f.Name, b)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	return d
}

const oldRecords = 170

// failer is what a test of any kind is.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// put makes a durable file.
func put(t failer, d *fault.Dir, name string, b []byte) {
	t.Helper()
	f, err := d.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// turnOld rewrites a log without notes as a program of version 1 would have written it: the headers
// and the commit frames.
func turnOld(t failer, d *fault.Dir) *fault.Dir {
	t.Helper()
	bases, err := segmentBases(faulty{d})
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range bases {
		b := d.Bytes(segmentName(base))
		h, err := decodeHeader(b)
		if err != nil {
			if h, err = decodeHeader(b[headerCopy:]); err != nil {
				t.Fatal(err)
			}
		}
		h = header{version: 1, id: h.id, base: h.base, durable: h.durable, created: h.created, salt: h.salt}
		copy(b, h.encode())
		for off := headerBytes; off < len(b); {
			f, ok := decodeFrame(b[off:], h.salt)
			if !ok {
				break
			}
			if f.kind == kindCommit {
				clear(b[off+frameHeader+24:][:8])
				binary.LittleEndian.PutUint32(b[off+4:], frameCRC(b[off:off+f.size], h.salt))
			}
			off += f.size
		}
		put(t, d, segmentName(base), b)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	return d
}

func headsOf(t *testing.T, d *fault.Dir) []head {
	t.Helper()
	heads, err := readHeads(faulty{d})
	if err != nil {
		t.Fatal(err)
	}
	return heads
}

func appendUpTo(t *testing.T, l *Log, last uint64) {
	t.Helper()
	for next := l.Position().Next; next <= last; next++ {
		if seq, err := l.Append(uint32(next%5), int64(next)*1000, payload(next)); err != nil || seq != next {
			t.Fatalf("Append gave %d, %v; want %d", seq, err, next)
		}
	}
}

// A log of version 1 is read and verified as it is, and gone on with in segments of version 2.
func TestVersion1GoesOn(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			d := oldLog(t)
			before := map[string][]byte{}
			for _, base := range segmentsOf(t, d) {
				before[segmentName(base)] = d.Bytes(segmentName(base))
			}
			if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 || s.Records != oldRecords {
				t.Fatalf("Verify: %+v, %v", s, err)
			}
			if last := readAll(t, NewReader(faulty{d}, 0), 1); last != oldRecords {
				t.Fatalf("read up to %d", last)
			}
			identity := [16]byte{}
			for round := range uint64(3) {
				l := open(t, small(faulty{d}, policy))
				if r := l.Recovered(); !r.Clean || r.Last != oldRecords+round*100 {
					t.Errorf("round %d: %+v", round, r)
				}
				if round > 0 && l.Identity() != identity || l.Identity() == [16]byte{} {
					t.Errorf("round %d: identity %x, it was %x", round, l.Identity(), identity)
				}
				identity = l.Identity()
				appendUpTo(t, l, oldRecords+(round+1)*100)
				closeLog(t, l)
			}
			if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 || s.Records != oldRecords+300 {
				t.Errorf("Verify: %+v, %v", s, err)
			}
			if last := readAll(t, NewReader(faulty{d}, 0), 1); last != oldRecords+300 {
				t.Errorf("read up to %d", last)
			}
			for _, h := range headsOf(t, d) {
				if old := before[segmentName(h.name)]; h.version == 1 != (old != nil) ||
					old != nil && !bytes.Equal(old, d.Bytes(segmentName(h.name))) {
					t.Errorf("%s has version %d, or was changed", segmentName(h.name), h.version)
				}
				if h.version == 2 && (h.log != identity || h.prior.kind != hashCommits) {
					t.Errorf("%s: %x, %+v", segmentName(h.name), h.log, h.prior)
				}
			}
		})
	}
}

// There is no room for a segment of version 2 when a log of version 1 is opened: it waits for that
// as for any other segment.
func TestVersion1OnAFullDisk(t *testing.T) {
	d := oldLog(t)
	d.SetFree(0)
	l := open(t, small(faulty{d}, SyncBatch))
	next := uint64(oldRecords + 1)
	for next < oldRecords+1000 {
		_, err := l.TryAppend(0, 1, payload(next))
		if errors.Is(err, ErrDiskFull) {
			break
		}
		if err == nil {
			next++
		}
	}
	d.SetFree(10 << 20)
	settles(t, l, next-1)
	closeLog(t, l)
	if last := readAll(t, NewReader(faulty{d}, 0), 1); last != next-1 {
		t.Errorf("read up to %d, want %d", last, next-1)
	}
	if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 {
		t.Errorf("Verify: %+v, %v", s, err)
	}
}

// A log of version 1 that was killed, or is empty, and cuts while it is opened for the first time:
// nothing is lost.
func TestVersion1AfterACut(t *testing.T) {
	for name, c := range map[string]struct {
		records uint64
		closed  bool
	}{
		"closed": {400, true}, "killed": {400, false}, "one segment": {10, false}, "empty": {0, false},
		"empty, closed": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				d := turnOld(t, severalSegments(t, c.records, c.closed))
				w := watched{faulty: faulty{d}, cuts: new(cuts), rng: rngFor(seed), every: 1, most: 6}
				l := open(t, small(w, SyncAlways))
				appendUpTo(t, l, c.records+5)
				closeLog(t, l)
				for i, cut := range append(w.states, cut{dir: d}) {
					at := fmt.Sprintf("seed %d, cut %d", seed, i)
					l := open(t, small(faulty{cut.dir}, SyncAlways))
					if p := l.Position(); p.Next <= c.records {
						t.Fatalf("%s: %+v", at, p)
					}
					identity := l.Identity()
					appendUpTo(t, l, c.records+200)
					closeLog(t, l)
					if got, err := Identity(faulty{cut.dir}); err != nil || got != identity || got == [16]byte{} {
						t.Fatalf("%s: identity %x, %v; want %x", at, got, err, identity)
					}
					if last := readAll(t, NewReader(faulty{cut.dir}, 0), 1); last != c.records+200 {
						t.Fatalf("%s: read up to %d", at, last)
					}
					if s, err := Verify(faulty{cut.dir}); err != nil || len(s.Problems) > 0 {
						t.Fatalf("%s: %+v, %v", at, s, err)
					}
				}
			}
		})
	}
}

// Damage in segments of version 1 is repaired, before and after the log went on in version 2.
func TestRepairOfVersion1(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		pristine, records := oldLog(t), uint64(oldRecords)
		if mixed {
			l := open(t, small(faulty{pristine}, SyncAlways))
			records += 200
			appendUpTo(t, l, records)
			closeLog(t, l)
		}
		for _, base := range segmentsOf(t, pristine)[:3] {
			for _, off := range []int64{20, headerBytes + 5000, headerBytes + 9001} {
				d := pristine.Copy()
				if err := d.Flip(segmentName(base), off, 3); err != nil {
					t.Fatal(err)
				}
				lost := uint64(1)
				if off < headerBytes {
					lost = 0
				}
				s, err := Verify(faulty{d})
				if err != nil || s.Clean() || s.Problems[0].Segment != segmentName(base) {
					t.Fatalf("Verify: %+v, %v", s, err)
				}
				if _, err := Repair(faulty{d}); err != nil {
					t.Fatal(err)
				}
				if s, err = Verify(faulty{d}); err != nil || !s.Clean() || s.Records+lost < records {
					t.Errorf("%s at %d, mixed %t: after the repair: %+v, %v", segmentName(base), off, mixed, s, err)
				}
				identity, err := Identity(faulty{d})
				if err != nil || mixed && identity == [16]byte{} {
					t.Errorf("identity %x, %v", identity, err)
				}
				l := openRepaired(t, small(faulty{d}, SyncAlways))
				if mixed && l.Identity() != identity || l.Position().Next != records+1 {
					t.Errorf("%x, %+v; want %x and %d records", l.Identity(), l.Position(), identity, records)
				}
				closeLog(t, l)
			}
		}
	}
}

// A program of version 1 looked at the first 64 bytes, and at the version behind their CRC: it says
// which version it meets.
func TestOlderProgramsKnowTheVersion(t *testing.T) {
	b := header{
		version: version, id: 3, base: 5, salt: 7, log: [16]byte{1},
		prior: prior{base: 2, kind: hashCommits},
	}.encode()
	crc := crc32.Checksum(append(slices.Clone(b[:12]), b[16:64]...), crc32.MakeTable(crc32.Castagnoli))
	if binary.LittleEndian.Uint32(b[12:]) != crc || binary.LittleEndian.Uint32(b[8:]) != 2 {
		t.Errorf("an older program takes the header for damaged")
	}
}

// What a newer program wrote is left alone, by a repair above all.
func TestNewerVersionIsLeftAlone(t *testing.T) {
	d := severalSegments(t, 400, true)
	bases := segmentsOf(t, d)
	name := segmentName(bases[len(bases)-1])
	b := d.Bytes(name)
	binary.LittleEndian.PutUint32(b[8:], version+1)
	binary.LittleEndian.PutUint32(b[12:], headerCRC(b))
	put(t, d, name, b)
	names, _ := d.List()
	refuse := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrVersion) || !strings.Contains(fmt.Sprint(err), name) ||
			!strings.Contains(fmt.Sprint(err), "version 3, this program reads 1 to 2") {
			t.Errorf("%s gives %v", what, err)
		}
	}
	_, err := Open(small(faulty{d}, SyncAlways))
	refuse("Open", err)
	_, err = Verify(faulty{d})
	refuse("Verify", err)
	_, err = Repair(faulty{d})
	refuse("Repair", err)
	r := NewReader(faulty{d}, bases[len(bases)-1])
	_, err = r.Next()
	refuse("Next", err)
	r.Close()
	if now, _ := d.List(); !slices.Equal(now, names) || !bytes.Equal(d.Bytes(name), b) {
		t.Errorf("the directory has %v, it had %v", now, names)
	}
}

// The segment of version 2 was begun, but its name could not be made durable, and the log is
// closed: the one of version 1 gets its mark. The hash that the new header has of it still holds.
func TestMarkBehindTheHash(t *testing.T) {
	d := oldLog(t)
	syncs := 0
	d.SetInject(func(op fault.Op, _ string) (int, error) {
		if op == fault.OpSyncDir {
			if syncs++; syncs == 1 {
				return 0, syscall.EIO
			}
		}
		return 0, nil
	})
	closeLog(t, open(t, small(faulty{d}, SyncAlways)))
	if heads := headsOf(t, d); heads[len(heads)-1].version != 2 ||
		heads[len(heads)-1].prior.base != heads[len(heads)-2].base {
		t.Fatalf("%+v", heads)
	}
	l := open(t, small(faulty{d}, SyncAlways))
	appendUpTo(t, l, oldRecords+5)
	closeLog(t, l)
	if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 {
		t.Errorf("Verify: %+v, %v", s, err)
	}
}
