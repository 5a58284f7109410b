package seglog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// repaired repairs a log, also with power cuts in the middle, and checks that it is whole then.
func repaired(t *testing.T, d *fault.Dir, records uint64, lost uint64) {
	t.Helper()
	if s, err := Verify(faulty{d}); err != nil || s.Clean() {
		t.Fatalf("Verify: %+v, %v", s, err)
	}
	w := watched{faulty: faulty{d}, cuts: new(cuts), rng: rngFor(1), every: 1, most: 20}
	if _, err := Repair(w); err != nil {
		t.Fatal(err)
	}
	for i, c := range append(w.states, cut{dir: d}) {
		if c.dir != d {
			if _, err := Repair(faulty{c.dir}); err != nil {
				t.Fatalf("cut %d: %v", i, err)
			}
		}
		if s, err := Verify(faulty{c.dir}); err != nil || !s.Clean() || s.Records+lost != records {
			t.Fatalf("cut %d: %+v, %v; want %d records, %d lost", i, s, err, records, lost)
		}
		l := openRepaired(t, small(faulty{c.dir}, SyncAlways))
		if next := l.Position().Next; next <= records {
			t.Errorf("cut %d: record %d is next", i, next)
		}
		closeLog(t, l)
	}
}

// Segments under the names of others get their own back; nothing is lost.
func TestRepairGivesSegmentsTheirNamesBack(t *testing.T) {
	for name, order := range map[string][]int{"swapped": {1, 0, 2}, "newest": {0, 2, 1}, "turned": {1, 2, 0}} {
		t.Run(name, func(t *testing.T) {
			d := severalSegments(t, 400, true)
			bases := segmentsOf(t, d)[:3]
			if name == "newest" {
				bases = segmentsOf(t, d)[len(segmentsOf(t, d))-3:]
			}
			for _, base := range bases {
				if err := d.Rename(segmentName(base), segmentName(base)+".x"); err != nil {
					t.Fatal(err)
				}
			}
			for i, to := range order {
				if err := d.Rename(segmentName(bases[i])+".x", segmentName(bases[to])); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			repaired(t, d, 400, 0)
		})
	}
}

// A repair keeps every damaged file, those of earlier repairs, too.
func TestRepairKeepsWhatEarlierRepairsSetAside(t *testing.T) {
	d := severalSegments(t, 300, true)
	name := segmentName(segmentsOf(t, d)[1])
	var kept [][]byte
	for n := range 3 {
		if err := d.Flip(name, headerBytes+int64(n+1)*4000, 2); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, d.Bytes(name))
		if _, err := Repair(faulty{d}); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{name + ".damaged", name + ".damaged.2", name + ".damaged.3"} {
		if !bytes.Equal(d.Bytes(name), kept[i]) {
			t.Errorf("%s is not what the repair found", name)
		}
	}
	closeLog(t, openRepaired(t, small(faulty{d}, SyncAlways)))
}

// A disk has written a late part of a segment over an early one: only what stood there is lost, and
// not all that lies between.
func TestRepairKeepsWhatIsBehindAFrameInTheWrongPlace(t *testing.T) {
	pristine := severalSegments(t, 400, true)
	for name, base := range map[string]uint64{
		"within the log": segmentsOf(t, pristine)[1],
		"at its end":     segmentsOf(t, pristine)[len(segmentsOf(t, pristine))-1],
	} {
		t.Run(name, func(t *testing.T) {
			d := pristine.Copy()
			b := d.Bytes(segmentName(base))
			sc, err := newScanner(bytes.NewReader(b), base)
			if err != nil {
				t.Fatal(err)
			}
			type place struct {
				off  int64
				size int
			}
			var records []place
			err = sc.search(headerBytes, int64(len(b)), func(off int64, f rawFrame) bool {
				if f.kind == kindRecord {
					records = append(records, place{off, f.size})
				}
				return true
			})
			if err != nil || len(records) < 20 {
				t.Fatalf("%d records, %v", len(records), err)
			}
			late, to := records[len(records)-5], records[3].off
			lost := uint64(0)
			for _, r := range records {
				if r.off+int64(r.size) > to && r.off < to+int64(late.size) {
					lost++
				}
			}
			copy(b[to:], b[late.off:][:late.size])
			put(t, d, segmentName(base), b)
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			repaired(t, d, 400, lost)
		})
	}
}

// Both headers of a segment are gone: its index still knows what its frames can be told by.
func TestRepairWithoutAHeader(t *testing.T) {
	pristine := severalSegments(t, 400, true)
	bases := segmentsOf(t, pristine)
	for _, base := range []uint64{bases[1], bases[len(bases)-1]} {
		d := pristine.Copy()
		for _, off := range []int64{20, headerCopy + 20} {
			if err := d.Flip(segmentName(base), off, 1); err != nil {
				t.Fatal(err)
			}
		}
		repaired(t, d, 400, 0)
	}
	// Nor is there an index: all that was in it is lost, and its numbers are not given again.
	d := pristine.Copy()
	newest := bases[len(bases)-1]
	if err := d.Remove(indexName(newest)); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{20, headerCopy + 20} {
		if err := d.Flip(segmentName(newest), off, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	repaired(t, d, 400, 400-newest+1)
}

// A disk that does not answer is no damage: nothing is given up for it.
func TestRepairGivesUpNothingForAnErrorOfTheDisk(t *testing.T) {
	pristine := severalSegments(t, 400, true)
	bases := segmentsOf(t, pristine)
	if err := pristine.Flip(segmentName(bases[1]), headerBytes+40, 1); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{20, headerCopy + 20} { // only the index knows how to read it
		if err := pristine.Flip(segmentName(bases[2]), off, 1); err != nil {
			t.Fatal(err)
		}
	}
	for fails := range 200 {
		d := pristine.Copy()
		reads := 0
		d.SetInject(func(op fault.Op, _ string) (int, error) {
			if op != fault.OpRead && op != fault.OpOpen {
				return 0, nil
			}
			if reads++; reads == fails+1 {
				return 0, syscall.EIO
			}
			return 0, nil
		})
		_, err := Repair(faulty{d})
		d.SetInject(nil)
		if err != nil {
			if _, err := Repair(faulty{d}); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := Verify(faulty{d}); err != nil || s.Records < 399 {
			t.Fatalf("an error of read %d: %d records are left, %v", fails, s.Records, err)
		}
	}
}

// A directory, a pipe, or a link to nowhere in the place of a segment.
func TestRepairOfWhatIsNoFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"folder": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
		},
		"pipe": func(path string) error { return exec.Command("mkfifo", path).Run() },
		"link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			dir, err := Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			l := open(t, small(dir, SyncNever))
			for n := range uint64(600) {
				if _, err := l.Append(0, 1, payload(n+1)); err != nil {
					t.Fatal(err)
				}
			}
			closeLog(t, l)
			bases, err := segmentBases(dir)
			if err != nil {
				t.Fatal(err)
			}
			place := filepath.Join(path, segmentName(bases[1]))
			if err := os.Remove(place); err != nil {
				t.Fatal(err)
			}
			if err := put(place); errors.Is(err, exec.ErrNotFound) {
				t.Skipf("SKIPPED: %v; it comes with coreutils", err)
			} else if err != nil {
				t.Fatal(err)
			}
			hung := time.AfterFunc(patience, func() { panic("opening what is no file takes for ever") })
			defer hung.Stop()
			if s, err := Verify(dir); err != nil || len(s.Problems) != 1 || s.Problems[0].To != bases[2]-1 {
				t.Errorf("Verify: %+v, %v", s, err)
			}
			if _, err := Segments(dir); err != nil {
				t.Error(err)
			}
			if _, err := Open(small(dir, SyncNever)); err == nil {
				t.Error("Open finds nothing wrong")
			}
			if _, err := Repair(dir); err != nil {
				t.Fatal(err)
			}
			closeLog(t, openRepaired(t, small(dir, SyncNever)))
			gaps, records := holds(t, NewReader(dir, 0), 600)
			if records != 600-(bases[2]-bases[1]) ||
				!slices.Equal(gaps, []GapError{{bases[1], bases[2] - 1, GapNoted}}) {
				t.Errorf("%d records are left, with gaps %v", records, gaps)
			}
			entries, err := os.ReadDir(path)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(entries,
				func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), damagedSuffix) }) {
				t.Error("what stood there was not set aside")
			}
		})
	}
}

// The file under a segment's name cannot be read, and the segment stands under another's: it gets
// its place, and what stood there is kept.
func TestRepairFindsASegmentWhosePlaceIsTaken(t *testing.T) {
	d := severalSegments(t, 400, true)
	bases := segmentsOf(t, d)
	a, b := segmentName(bases[1]), segmentName(bases[2])
	if err := d.Rename(a, b); err != nil { // b's own is gone, b holds a
		t.Fatal(err)
	}
	f, err := d.Create(a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("no segment "), 1000), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), d.Sync()); err != nil {
		t.Fatal(err)
	}
	lost := uint64(400) + 1 - bases[2]
	if len(bases) > 3 {
		lost = bases[3] - bases[2]
	}
	repaired(t, d, 400, lost)
	if kept := d.Bytes(a + damagedSuffix); !bytes.HasPrefix(kept, []byte("no segment")) {
		t.Error("what stood there is not kept")
	}
}

// A repair was cut short before its file was whole, and later the segment leaves its place: the
// part does not come into it.
func TestRepairLeavesPartsOfAnEarlierOne(t *testing.T) {
	d := severalSegments(t, 400, true)
	bases := segmentsOf(t, d)
	name := segmentName(bases[1])
	for _, left := range []string{name + partSuffix, name + damagedSuffix} { // … and one before that was not
		f, err := d.Create(left)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(d.Bytes(name)[:headerBytes+500], 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Rename(name, segmentName(bases[2])+".x"); err != nil { // swapped with the next one
		t.Fatal(err)
	}
	if err := d.Rename(segmentName(bases[2]), name); err != nil {
		t.Fatal(err)
	}
	if err := d.Rename(segmentName(bases[2])+".x", segmentName(bases[2])); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	repaired(t, d, 400, 0)
}

// Nothing is left that tells which log it was, but the owner knows: the repair does not make it
// another log.
func TestRepairLeavesTheIdentityToTheOwner(t *testing.T) {
	for _, records := range []uint64{0, 20} {
		d := fault.New()
		l := open(t, small(faulty{d}, SyncAlways))
		appendUpTo(t, l, records)
		cfg := small(faulty{d}, SyncAlways)
		cfg.Identity, cfg.Expect.Last = l.Identity(), records
		closeLog(t, l)
		if err := d.Cut(segmentName(1), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Repair(faulty{d}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if l.Identity() != cfg.Identity || l.Position().Next <= records {
				t.Errorf("%x, want %x; %+v", l.Identity(), cfg.Identity, l.Position())
			}
			closeLog(t, l)
		}
		if id, err := Identity(faulty{d}); id != cfg.Identity || err != nil {
			t.Errorf("%x, %v; want %x", id, err, cfg.Identity)
		}
	}
}

// A segment begins within the one before it, and nothing says that it belongs to another log: the
// log is of version 1. It is named, and a repair sets it aside as it is.
func TestSegmentWithinAnother(t *testing.T) {
	const records = 400
	d := turnOld(t, severalSegments(t, records, true))
	bases := segmentsOf(t, d)
	stray := header{version: version, id: 1, base: bases[1] + 7, salt: 5, log: [16]byte{1, 2, 3}}
	for name, at := range map[string]uint64{"its own name": stray.base, "another name": records + 100_000} {
		d := d.Copy()
		put(t, d, segmentName(at), stray.encode())
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := Repair(faulty{d}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(d.Bytes(segmentName(stray.base)+damagedSuffix), stray.encode()) {
			t.Errorf("%s: it was not set aside as it was", name)
		}
		if s, err := Verify(faulty{d}); err != nil || !s.Clean() || s.Records != records {
			t.Errorf("%s: Verify after the repair: %+v, %v", name, s, err)
		}
		l, err := Open(small(faulty{d}, SyncAlways))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m := l.Recovered().Missing; len(m) > 0 || l.Position().Next != records+1 {
			t.Errorf("%s: missing %+v, %+v", name, m, l.Position())
		}
		closeLog(t, l)
	}
}

// The header of the last segment says that a record is durable that no log comes to. An opening
// refused that, Verify said that all is well, and so Repair did nothing.
func TestRepairOfAHeaderThatCannotBeOne(t *testing.T) {
	d := severalSegments(t, 400, true)
	bases := segmentsOf(t, d)
	name := segmentName(bases[len(bases)-1])
	b := d.Bytes(name)
	h, err := decodeHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	h.durable = 1<<64 - 1
	copy(b, h.encode())
	put(t, d, name, b)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(small(faulty{d}, SyncAlways)); err == nil {
		t.Fatal("the log opens")
	}
	repaired(t, d, 400, 0)
}
