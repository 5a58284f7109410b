package seglog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
)

// A log says beside its segments how far it is durable: in the file `durable`, which it writes
// behind each sync and never syncs, so that it costs a commit one small write. A kill leaves it as
// it is, a power cut as it was some time before: what it says was true at any time. So where the
// newest segment is cut, or removed, under a process that is killed right behind that, the next
// opening knows up to where records had been promised.
//
// It says, too, how far the log is written, which is more under SyncInterval and SyncNever: there
// it is written behind each commit. That is no promise, but those numbers were given, and are not
// given again.
//
// Whoever commits writes it, and whoever takes segments out. An error of that is no error of the
// log: then it says less.

const (
	durableFile  = "durable"
	durableMagic = "TALLYDUR"
	durableBytes = 64
)

// It also says how many records were removed for want of room in the life of the log, before they
// go, and which was the first then that stayed: whoever finds older ones has them counted already.

// said is what the file says.
type said struct {
	log     [16]byte
	last    uint64 // durable up to
	stored  uint64 // written up to, durable or not; 0: a program before this does not say
	evicted uint64 // records that a full disk took
	stays   uint64 // … all of them before this one
}

// durability is the file of a log that is open.
type durability struct {
	mu   sync.Mutex // guards what follows; held while 64 bytes are written
	said said
	file File                 // nil: there is none yet, or no more
	same func() (bool, error) // whether its name still stands for it
	buf  [durableBytes]byte

	before uint64        // said.stays when the log was opened
	ever   atomic.Uint64 // said.evicted, for who must not wait for the disk
}

// begin makes the file where it does not stand as it was written: at a start always, for under
// another name, as in a backup made of hard links, the one before stays as it is; later where
// somebody has removed it, or written to it. aside tells what had its place and was no file.
func (d *durability) begin(dir FS, log [16]byte, last uint64) (aside, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		if d.stands() {
			return nil, nil
		}
		d.drop()
	}
	part := durableFile + partSuffix
	for _, name := range []string{part, durableFile} {
		told, err := clearPlace(dir, name)
		if err != nil {
			return aside, err
		}
		aside = cmp.Or(told, aside)
	}
	if d.file, err = dir.Create(part); err != nil {
		d.file = nil
		return aside, err
	}
	d.said.log, d.said.last = log, max(d.said.last, last)
	d.said.stored = max(d.said.stored, last)
	if err = d.write(); err == nil {
		if err = dir.Rename(part, durableFile); err == nil {
			d.same, err = dir.Track(durableFile)
		}
	}
	if err != nil {
		d.drop()
		_ = dir.Remove(part) // else the next start does
	}
	return aside, err
}

// stands reports whether the file is under its name, as it was written. What cannot be told at this
// moment is taken for good. mu is held.
func (d *durability) stands() bool {
	if is, err := d.same(); err != nil {
		return true
	} else if !is {
		return false
	}
	var b [durableBytes]byte
	n, err := d.file.ReadAt(b[:], 0)
	if n < len(b) {
		return err != io.EOF
	}
	return b == d.buf
}

// note says that the log is durable up to a record, and written up to another.
func (d *durability) note(last, stored uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said.last, d.said.stored = last, stored
	_ = d.write() // the watch makes another
}

// evict says that a full disk takes a segment with n records, behind which the log begins with
// stays. false: it had said so when the log was opened.
func (d *durability) evict(n, stays uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stays > d.said.stays { // else it is tried again
		d.said.evicted, d.said.stays = d.said.evicted+n, stays
		d.ever.Store(d.said.evicted)
		_ = d.write() // as in note
	}
	return stays > d.before
}

// write writes the file, if there is one. After an error there is none. mu is held.
func (d *durability) write() error {
	if d.file == nil {
		return nil
	}
	copy(d.buf[:], durableMagic)
	copy(d.buf[8:], d.said.log[:])
	binary.LittleEndian.PutUint64(d.buf[24:], d.said.last)
	binary.LittleEndian.PutUint64(d.buf[32:], d.said.evicted)
	binary.LittleEndian.PutUint64(d.buf[40:], d.said.stays)
	binary.LittleEndian.PutUint64(d.buf[48:], d.said.stored)
	binary.LittleEndian.PutUint32(d.buf[60:], crc32.Checksum(d.buf[:60], castagnoli))
	err := writeAll(d.file, d.buf[:], 0)
	if err != nil {
		d.drop()
	}
	return err
}

func (d *durability) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
}

// drop is close with mu held.
func (d *durability) drop() {
	if d.file != nil {
		_ = d.file.Close()
		d.file = nil
	}
}

// readSaid reads the file in a directory; zeros: there is none that says anything. keep has it
// synced.
func readSaid(dir FS, keep bool) (s said, err error) {
	f, err := dir.Open(durableFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoFile) || errors.Is(err, fs.ErrPermission) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	b := make([]byte, durableBytes)
	n, err := f.ReadAt(b, 0)
	if n < len(b) {
		if err == io.EOF { // a power cut has left it so
			err = nil
		}
		return s, err
	}
	last, stored := binary.LittleEndian.Uint64(b[24:]), binary.LittleEndian.Uint64(b[48:])
	if string(b[:8]) != durableMagic || crc32.Checksum(b[:60], castagnoli) != binary.LittleEndian.Uint32(b[60:]) ||
		max(last, stored) >= 1<<63 {
		return s, nil
	}
	s = said{
		log: [16]byte(b[8:]), last: last, evicted: binary.LittleEndian.Uint64(b[32:]),
		stays: binary.LittleEndian.Uint64(b[40:]), stored: stored,
	}
	if keep {
		if err = f.Sync(); err == nil {
			err = dir.Sync()
		}
	}
	return s, err
}

// keepSaid sees to it that the file says up to where the log is durable, as it must: at the start,
// with each segment, and each second. Who commits calls it, or the watch.
func (l *Log) keepSaid() {
	l.mu.Lock()
	durable, absent := l.durable, l.seg.absent
	l.mu.Unlock()
	if absent {
		return
	}
	aside, err := l.said.begin(l.cfg.FS, l.identity, durable)
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	if aside != nil {
		l.shelf.note(aside)
		signal(l.shelf.work) // it is told there; nil before the start of that, which signals itself
	}
	if err == nil || isFull(err) { // that is told elsewhere
		l.unsaid = 0
		return
	}
	if l.unsaid++; l.unsaid == unsaidLooks {
		l.shelf.note(fmt.Errorf("%s cannot be written: behind a kill, a log that is cut may not know its end: %w",
			durableFile, err))
	}
}

// unsaidLooks is how many looks at the file fail in a row before that is told: what passes is not.
const unsaidLooks = 3

// with is what is known, and what the log of that identity says beside its segments; zeros are any.
func (e Extent) with(s said, log [16]byte) Extent {
	if log == [16]byte{} || log == s.log {
		e.Last, e.Given = max(e.Last, s.last), max(e.Given, s.stored)
	}
	return e
}

// heed takes in what the log says beside its segments. A power cut during the opening must not take
// that.
func (l *Log) heed(log [16]byte) error {
	s, err := readSaid(l.cfg.FS, true)
	if err != nil || log != [16]byte{} && log != s.log {
		return err
	}
	l.cfg.Expect, l.said.said, l.said.before = l.cfg.Expect.with(s, log), s, s.stays
	l.said.ever.Store(s.evicted)
	return nil
}

// withSaid is what is known, and what the log of the newest segment says beside it, for who looks.
func (e Extent) withSaid(dir FS) (Extent, error) {
	bases, err := segmentBases(dir)
	if err != nil {
		return e, err
	}
	var id [16]byte
	if n := len(bases); n > 0 {
		h, err := readHead(dir, bases[n-1])
		if err != nil && !errors.Is(err, ErrVersion) && !errors.Is(err, fs.ErrNotExist) { // those show again
			return e, err
		}
		if h.ok {
			id = h.log
		}
	}
	s, err := readSaid(dir, false)
	return e.with(s, id), err
}
