package asyncfile

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// mapped is the mmap backend. The map may be longer than the file where the system allows it, so
// that a file that grows is seldom mapped anew; size is the length that this File knows, and
// nothing beyond it is touched.
type mapped struct {
	f      *os.File
	path   string
	cfg    Config
	choice Choice
	poison poison

	mu     sync.RWMutex // read-locked by loads and stores, locked by whatever changes the fields below
	mem    []byte
	size   int64
	closed bool

	mapFile func(f *os.File, n int, write bool) ([]byte, error) // sys.MapFile, but in tests
}

const minMap = 64 << 10

func newMapped(f *os.File, cfg Config, choice Choice) (File, error) {
	m := &mapped{f: f, path: f.Name(), cfg: cfg, choice: choice, mapFile: sys.MapFile}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return m, m.remap(st.Size())
}

// remap makes the map fit a new size, which holds from then on. Where that fails, the map and the
// size stay what they were.
func (m *mapped) remap(size int64) error {
	err := m.cover(size, size)
	if err == nil {
		m.size = size
	}
	return err
}

// reach makes the map long enough for an end that the file is to have, where a map may be longer
// than its file: what cannot be mapped is not done to the file either.
func (m *mapped) reach(end int64) error {
	if !sys.MapsBeyondEnd || !m.cfg.Write { // the file says what is wrong
		return nil
	}
	return m.cover(end, m.size)
}

// cover makes the map n bytes long or longer; the file has size bytes of those. An empty file is
// mapped, too, where that can be done: it may be one that has no pages.
func (m *mapped) cover(n, size int64) error {
	fits := int64(len(m.mem)) == n
	if sys.MapsBeyondEnd {
		fits = int64(len(m.mem)) >= n && m.mem != nil
	}
	if fits {
		return nil
	}
	if n > math.MaxInt {
		return fmt.Errorf("map %s: %d bytes are more than this machine can address", m.path, n)
	}
	want := n
	if sys.MapsBeyondEnd && (m.cfg.Write || n == 0) {
		want = max(n+min(n/2, math.MaxInt-n), minMap)
	}
	var mem []byte
	if want > 0 {
		var err error
		mem, err = m.mapFile(m.f, int(want), m.cfg.Write)
		if err != nil && 0 < n && n < want { // there may be no room to grow
			mem, err = m.mapFile(m.f, int(n), m.cfg.Write)
		}
		if err != nil {
			return fmt.Errorf("map %s: %w", m.path, err)
		}
		advise := sys.AdviseRandom
		if m.cfg.Sequential {
			advise = sys.AdviseSequential
		}
		_ = advise(mem) // advice: without it the map only reads ahead as the kernel sees fit
		m.prepare(mem[:size])
	}
	err := m.unmap()
	m.mem = mem
	return err
}

// prepare does what Huge and Populate ask for; of what cannot be had Choice tells.
func (m *mapped) prepare(mem []byte) {
	if len(mem) == 0 {
		return
	}
	for _, p := range []struct {
		wanted  bool
		do      func([]byte) error
		without string
	}{
		{m.cfg.Huge, sys.AdviseHuge, "no huge pages"},
		{m.cfg.Populate, sys.Populate, "its pages come as they are touched"},
	} {
		if !p.wanted {
			continue
		}
		if err := p.do(mem); err != nil && !strings.Contains(m.choice.Why, p.without) {
			m.choice.Why += fmt.Sprintf("; %s: %v", p.without, err)
		}
	}
}

func (m *mapped) unmap() error {
	if m.mem == nil {
		return nil
	}
	mem := m.mem
	m.mem = nil
	return sys.Unmap(mem)
}

// guarded copies between the map, from off, and memory, and turns a fault into an error.
func (m *mapped) guarded(op string, off int64, dst, src []byte) (n int, err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if p := recover(); p != nil {
			n, err = 0, m.fault(op, off, p)
		}
	}()
	return copy(dst, src), nil
}

// fault makes an error of a panic if its address lies in the map; any other panic goes on. Where
// the machine does not tell the address, it is taken for the map's: nothing else in guarded is
// likely to fail.
func (m *mapped) fault(op string, off int64, p any) error {
	cause, ok := p.(runtime.Error)
	if !ok {
		panic(p)
	}
	if f, ok := p.(interface{ Addr() uintptr }); ok {
		at := f.Addr() - sys.AddressOf(m.mem)
		if at >= uintptr(len(m.mem)) {
			panic(p)
		}
		off = int64(at)
	}
	return &AccessError{Op: op, Path: m.path, Off: off &^ int64(os.Getpagesize()-1), Err: cause}
}

func (m *mapped) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, negative("read", m.path, off)
	}
	if err := tooFar("read", m.path, len(b), off); err != nil {
		return 0, err
	}
	if m.cfg.Shared {
		if err := m.look(); err != nil {
			return 0, err
		}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case m.closed:
		return 0, os.ErrClosed
	case len(b) == 0:
		return 0, nil
	case off >= m.size:
		return 0, io.EOF
	case m.lost():
		return 0, fmt.Errorf("read %s: %w", m.path, errLost)
	}
	n, err := m.guarded("read", off, b, m.mem[off:m.size])
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

// look takes over a size that others have changed. It asks again under the lock: the first answer
// may be older than what WriteAt has made of the file since.
func (m *mapped) look() error {
	st, err := m.f.Stat()
	if err != nil {
		return err
	}
	m.mu.RLock()
	same := m.closed || st.Size() == m.size
	m.mu.RUnlock()
	if same {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return os.ErrClosed
	}
	return m.takeSize()
}

// takeSize makes the length of the file that of the map. m.mu is locked.
func (m *mapped) takeSize() error {
	st, err := m.f.Stat()
	if err != nil {
		return err
	}
	return m.remap(st.Size())
}

// lost reports that the map had to go before a change of the length, and could not be made again
// behind it: only where a map cannot be longer than its file.
func (m *mapped) lost() bool { return int64(len(m.mem)) < m.size }

var errLost = errors.New("not mapped any more; open the file again")

func (m *mapped) WriteAt(b []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, negative("write", m.path, off)
	case !m.cfg.Write && len(b) > 0:
		return 0, readOnly(m.path)
	}
	if err := tooFar("write", m.path, len(b), off); err != nil {
		return 0, err
	}
	end := off + int64(len(b))
	m.mu.RLock()
	if end <= m.size || m.closed || len(b) == 0 {
		defer m.mu.RUnlock()
		return m.store(b, off)
	}
	m.mu.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if end > m.size && !m.closed {
		return m.extend(b, off)
	}
	return m.store(b, off)
}

// extend writes past the end by an ordinary call: to set a length would cut off what others have
// appended, and a store would need room on the disk. m.mu is locked.
func (m *mapped) extend(b []byte, off int64) (int, error) {
	end := off + int64(len(b))
	if err := m.whole("write", m.size); err != nil {
		return 0, err
	}
	if err := m.reach(end); err != nil {
		return 0, err
	}
	n, err := m.f.WriteAt(b, off)
	if err == nil && !m.cfg.Shared {
		return n, m.remap(end)
	}
	if e := m.takeSize(); err == nil { // os.File does not count all that came before its error
		err = e
	}
	return n, err
}

// whole returns an [AccessError] if others have made the file shorter than so many bytes, of which
// this File has them all: to lengthen it would put zeros in their place, and Sync could not tell.
func (m *mapped) whole(op string, size int64) error {
	if m.cfg.Shared || !m.cfg.Write {
		return nil
	}
	end, err := m.f.Seek(0, io.SeekEnd) // no call here minds the place; Stat would allocate
	if err == nil && end < size {
		err = &AccessError{Op: op, Path: m.path, Off: end, Err: io.ErrUnexpectedEOF}
	}
	return err
}

// store writes what lies within the size. m.mu is locked, for reading at least.
//
// With Shared it is an ordinary call, too. When another's write leaves a gap behind the old end,
// the kernel tells the new length first and puts zeros into the gap afterwards (Linux 6.13 and
// later: pagecache_isize_extended): what is stored there between the two is gone. Calls wait for
// each other.
func (m *mapped) store(b []byte, off int64) (int, error) {
	switch {
	case m.closed:
		return 0, os.ErrClosed
	case len(b) == 0:
		return 0, nil
	case m.cfg.Shared:
		return m.f.WriteAt(b, off)
	case m.lost():
		return 0, fmt.Errorf("write %s: %w", m.path, errLost)
	}
	return m.guarded("write", off, m.mem[off:off+int64(len(b))], b)
}

// Sync writes the changed pages, then the length.
func (m *mapped) Sync() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return os.ErrClosed
	}
	return m.poison.sync(m.path, func() error {
		if m.size > 0 && m.cfg.Write {
			if m.lost() {
				return fmt.Errorf("sync %s: %w", m.path, errLost)
			}
			if err := sys.SyncMap(m.mem[:m.size]); err != nil {
				return fmt.Errorf("sync %s: %w", m.path, err)
			}
		}
		if err := sys.Datasync(m.f); err != nil {
			return err
		}
		return m.whole("sync", m.size)
	})
}

func (m *mapped) Size() (int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case m.closed:
		return 0, os.ErrClosed
	case m.cfg.Shared:
		return disk{m.f}.Size()
	}
	return m.size, nil
}

func (m *mapped) Truncate(size int64) error {
	if size < 0 {
		return negative("truncate", m.path, size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return os.ErrClosed
	}
	if err := m.whole("truncate", min(size, m.size)); err != nil {
		return err
	}
	if err := m.reach(size); err != nil {
		return err
	}
	if !sys.MapsBeyondEnd { // a file cannot change its length under a map there
		if err := m.unmap(); err != nil {
			return err
		}
	}
	if err := m.f.Truncate(size); err != nil {
		return errors.Join(err, m.remap(m.size))
	}
	return m.remap(size)
}

func (m *mapped) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return os.ErrClosed
	}
	m.closed = true
	return errors.Join(m.unmap(), m.f.Close())
}

func (m *mapped) Choice() Choice { return m.choice }
