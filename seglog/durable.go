package seglog

import (
	"encoding/binary"
	"errors"
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

// begin makes the file anew, as it is right now: under another name, as in a backup made of hard
// links, the one before stays as it is.
func (d *durability) begin(dir FS, log [16]byte, last uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		if is, err := d.same(); is || err != nil {
			return
		}
		d.drop() // somebody has removed it
	}
	part := durableFile + partSuffix
	f, err := dir.Create(part)
	if err != nil {
		return
	}
	d.file, d.said.log, d.said.last = f, log, last
	d.write()
	if d.file != nil {
		if err = dir.Rename(part, durableFile); err == nil {
			d.same, err = dir.Track(durableFile)
		}
		if err != nil {
			d.drop()
		}
	}
	if d.file == nil {
		_ = dir.Remove(part) // else the next start does
	}
}

// note says that the log is durable up to a record.
func (d *durability) note(last uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said.last = last
	d.write()
}

// evict says that a full disk takes a segment with n records, behind which the log begins with
// stays. false: it had said so when the log was opened.
func (d *durability) evict(n, stays uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stays > d.said.stays { // else it is tried again
		d.said.evicted, d.said.stays = d.said.evicted+n, stays
		d.ever.Store(d.said.evicted)
		d.write()
	}
	return stays > d.before
}

// write writes the file, if there is one. mu is held.
func (d *durability) write() {
	if d.file == nil {
		return
	}
	copy(d.buf[:], durableMagic)
	copy(d.buf[8:], d.said.log[:])
	binary.LittleEndian.PutUint64(d.buf[24:], d.said.last)
	binary.LittleEndian.PutUint64(d.buf[32:], d.said.evicted)
	binary.LittleEndian.PutUint64(d.buf[40:], d.said.stays)
	binary.LittleEndian.PutUint32(d.buf[60:], crc32.Checksum(d.buf[:60], castagnoli))
	if writeAll(d.file, d.buf[:], 0) != nil {
		d.drop()
	}
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
	last := binary.LittleEndian.Uint64(b[24:])
	if string(b[:8]) != durableMagic || crc32.Checksum(b[:60], castagnoli) != binary.LittleEndian.Uint32(b[60:]) ||
		last >= 1<<63 {
		return s, nil
	}
	s = said{
		log: [16]byte(b[8:]), last: last, evicted: binary.LittleEndian.Uint64(b[32:]),
		stays: binary.LittleEndian.Uint64(b[40:]),
	}
	if keep {
		if err = f.Sync(); err == nil {
			err = dir.Sync()
		}
	}
	return s, err
}

// with is what is known, and what the log of that identity says beside its segments; zeros are any.
func (e Extent) with(s said, log [16]byte) Extent {
	if log == [16]byte{} || log == s.log {
		e.Last = max(e.Last, s.last)
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
