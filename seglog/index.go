package seglog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sort"
	"sync"
)

// indexEvery is how many bytes of a segment lie between two entries, at least.
const indexEvery = 256 << 10

// index finds batches in a segment by sequence and by time. Times in a log may step back when a
// clock is set: the index keeps the highest so far, so a search by time finds the first batch that
// reaches it.
type index struct {
	mu      sync.Mutex // entries of the active segment grow while readers search
	entries []indexEntry
	last    uint64 // sequence of the last record, known when sealed
	top     int64  // highest time so far; 0 at least, which only makes a search begin earlier
}

type indexEntry struct {
	off   int64  // where a batch begins
	first uint64 // its first sequence
	time  int64  // highest time of the records before it
}

// add notes that a batch of records from first on, none later than time, begins at off.
func (x *index) add(off int64, first uint64, time int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.entries); n == 0 || off-x.entries[n-1].off >= indexEvery {
		x.entries = append(x.entries, indexEntry{off, first, x.top})
	}
	x.top = max(x.top, time)
}

// bySequence returns the entry to start at for the record seq.
func (x *index) bySequence(seq uint64) (indexEntry, bool) {
	return x.before(func(e indexEntry) bool { return e.first > seq })
}

// byTime returns the entry to start at for the first record not earlier than t.
func (x *index) byTime(t int64) (indexEntry, bool) {
	return x.before(func(e indexEntry) bool { return e.time >= t })
}

// before returns the last entry before the first one that is past the goal.
func (x *index) before(past func(indexEntry) bool) (indexEntry, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.entries), func(i int) bool { return past(x.entries[i]) })
	if i == 0 {
		return indexEntry{}, false
	}
	return x.entries[i-1], true
}

func (x *index) maxTime() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.top
}

const indexMagic = "TALLYIDX"

// close adds what only the index of a log's last segment has, when it is closed in order: an entry
// for the mark of the clean end, at off.
func (x *index) close(off int64, last uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entries = append(x.entries, indexEntry{off, last + 1, x.top})
}

// save writes the index of a sealed segment beside it.
func (x *index) save(dir FS, h header, last uint64, durable bool) error {
	x.mu.Lock()
	b := []byte(indexMagic)
	b = binary.LittleEndian.AppendUint32(b, 0) // CRC
	b = binary.LittleEndian.AppendUint32(b, h.salt)
	b = binary.LittleEndian.AppendUint64(b, last)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.top))
	for _, e := range x.entries {
		b = binary.LittleEndian.AppendUint64(b, uint64(e.off))
		b = binary.LittleEndian.AppendUint64(b, e.first)
		b = binary.LittleEndian.AppendUint64(b, uint64(e.time))
	}
	x.mu.Unlock()
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	f, err := dir.Create(indexName(h.base))
	if err != nil {
		return err
	}
	err = writeAll(f, b, 0)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil && durable {
		err = dir.Sync()
	}
	return err
}

// giveIndex gives a sealed segment its index, if it has none; without, each reader makes it anew,
// and so does the next start. The name of the segment behind it is for good first: an index tells
// that there was one.
func (l *Log) giveIndex(x *index, h header, last uint64) {
	if there, salt, err := readIndex(l.cfg.FS, h.base); err == nil && there != nil && salt == h.salt {
		return
	}
	if l.cfg.FS.Sync() == nil { // else recovery ends at its own
		_ = x.save(l.cfg.FS, h, last, false)
	}
}

// loadIndex reads the index of a sealed segment, or makes it anew by reading the segment.
func loadIndex(dir FS, base uint64) (*index, error) {
	f, _, err := openSegment(dir, base)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		return nil, err
	}
	if x, salt, err := readIndex(dir, base); err == nil && x != nil && salt == sc.salt {
		return x, nil
	}
	x := &index{last: base - 1}
	for {
		b, err := sc.batch()
		if err != nil {
			return x, sc.readErr // the end, or damage, unless the disk did not answer
		}
		if len(b.frames) > 0 {
			x.add(b.off, b.first, b.time)
			x.last = b.last
		}
	}
}

// canBeOf reports whether the index can be that of a segment. A right checksum makes no file one
// that is: what was written over it, or is forged, must not lead a reader in front of the file.
func (x *index) canBeOf(base uint64) bool {
	if x.last > maxSequence || x.last+1 < base {
		return false
	}
	was := indexEntry{first: base, off: headerBytes - 1}
	for _, e := range x.entries {
		if e.off <= was.off || e.off%alignment != 0 || e.first < was.first || e.first > x.last+1 {
			return false
		}
		was = e
	}
	return true
}

// readIndex reads an index file, and the salt of the segment that it belongs to; nil if it is no
// index of that segment, or damaged.
func readIndex(dir FS, base uint64) (x *index, salt uint32, err error) {
	f, err := dir.Open(indexName(base))
	if errors.Is(err, errNoFile) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil || n < 32 || n > 64<<20 || (n-32)%24 != 0 {
		return nil, 0, err
	}
	b := make([]byte, n)
	if got, err := f.ReadAt(b, 0); int64(got) != n {
		return nil, 0, err
	}
	if string(b[:8]) != indexMagic || crc32.Checksum(b[12:], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, 0, nil
	}
	x = &index{last: binary.LittleEndian.Uint64(b[16:]), top: int64(binary.LittleEndian.Uint64(b[24:]))}
	for e := b[32:]; len(e) > 0; e = e[24:] {
		x.entries = append(x.entries, indexEntry{
			int64(binary.LittleEndian.Uint64(e)), binary.LittleEndian.Uint64(e[8:]),
			int64(binary.LittleEndian.Uint64(e[16:])),
		})
	}
	if !x.canBeOf(base) {
		return nil, 0, nil
	}
	return x, binary.LittleEndian.Uint32(b[12:]), nil
}
