package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/beat"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// errForeign: the directory, or a file in it, is not the one that the log was opened with. Writing
// on could destroy what others wrote.
var errForeign = errors.New("it is not the one that was opened")

// dirLock is the lock on a directory of the operating system. It is held on the directory itself,
// which cannot be removed and made again without being another, and on the file LOCK: for file
// systems whose directories cannot be locked, and for programs that know only that.
type dirLock struct {
	dir    osDir
	folder *os.File

	mu   sync.Mutex
	file *os.File // of the name LOCK; another one after that was removed
}

const lockFile = "LOCK"

// Lock implements FS.
func (d osDir) Lock() (io.Closer, error) {
	folder, err := os.Open(d.dir)
	if err != nil {
		return nil, err
	}
	l := &dirLock{dir: d, folder: folder}
	if held, _ := sys.Lock(folder); held { // other errors: only files can be locked there
		return nil, errors.Join(fmt.Errorf("%s: %w", d.dir, ErrLocked), folder.Close())
	}
	if err := l.take(); err != nil {
		return nil, errors.Join(err, letGo(folder))
	}
	return l, nil
}

// take locks the file, and makes sure that it is the one under the name.
func (l *dirLock) take() error {
	for {
		path := l.dir.path(lockFile)
		if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
			return fmt.Errorf("%s: %w: move it away", path, errNoFile)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, FilePerm)
		if errors.Is(err, os.ErrPermission) {
			f, err = os.Open(path) // enough for a lock on a local disk
		}
		if st, statErr := os.Lstat(path); err != nil && statErr == nil && st.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("%w: move that link away", err)
		}
		if err != nil {
			return err
		}
		held, err := sys.Lock(f)
		switch {
		case held:
			return errors.Join(fmt.Errorf("%s: %w", l.dir.dir, ErrLocked), f.Close())
		case err != nil:
			return errors.Join(fmt.Errorf("%s: %w", f.Name(), err), f.Close())
		}
		if same, err := sameFile(f, f.Name()); err != nil || same {
			l.file = f
			return err
		}
		_ = letGo(f) // removed before it was locked
	}
}

// Held implements Holder. A LOCK that somebody removed is made again; the directory keeps others
// out meanwhile.
func (l *dirLock) Held() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	same, err := sameFile(l.folder, l.dir.dir)
	if err == nil && !same {
		return fmt.Errorf("%s was removed or replaced: %w", l.dir.dir, errForeign)
	}
	if err != nil {
		return nil // not to be told now
	}
	if same, err := sameFile(l.file, l.dir.path(lockFile)); err != nil || same {
		return nil
	}
	old := l.file
	if err := l.take(); errors.Is(err, ErrLocked) {
		return fmt.Errorf("%s was removed, and is held by another process: %w", lockFile, errForeign)
	} else if err != nil {
		return nil // the next look tries again
	}
	return letGo(old)
}

// Close implements io.Closer.
func (l *dirLock) Close() error { return errors.Join(letGo(l.file), letGo(l.folder)) }

// letGo unlocks a file and closes it. The close alone would leave the lock with a process that is
// just being started, and the log could not be opened again for that moment.
func letGo(f *os.File) error { return errors.Join(sys.Unlock(f), f.Close()) }

// sameFile reports whether path still is the open file.
func sameFile(f *os.File, path string) (bool, error) {
	was, err := f.Stat()
	if err != nil {
		return false, err
	}
	return isFile(path, was)
}

func isFile(path string, was fs.FileInfo) (bool, error) {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) { // a link to itself is none, too
		return false, nil
	}
	return err == nil && os.SameFile(was, now), err
}

// Track implements FS.
func (d osDir) Track(name string) (same func() (bool, error), err error) {
	was, err := os.Stat(d.path(name))
	if err != nil {
		return nil, err
	}
	return func() (bool, error) { return isFile(d.path(name), was) }, nil
}

// track makes the segment notice that its file was taken away.
func (s *segment) track(dir FS) (err error) {
	s.same, err = dir.Track(s.name())
	return err
}

// inPlace is an error when the segment that is written to is not under its name any more, or the
// lock does not hold. What cannot be told at this moment is taken for good.
func (l *Log) inPlace() error {
	l.mu.Lock()
	s := l.seg
	l.mu.Unlock()
	if h, ok := l.lock.(Holder); ok {
		if err := h.Held(); err != nil {
			return err
		}
	}
	if same, err := s.same(); same || err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seg != s { // sealed meanwhile: retention may have removed it
		return nil
	}
	return fmt.Errorf("%s was removed or replaced: %w", s.name(), errForeign)
}

// watch looks each second whether all is in its place, and as it was written. It returns when the
// log is closed.
func (l *Log) watch() {
	defer l.done.Done()
	var before tail
	next := time.NewTimer(beat.Next(watchPeriod))
	defer next.Stop()
	for ; ; next.Reset(beat.Next(watchPeriod)) {
		select {
		case <-l.quit:
			return
		case <-next.C:
		}
		if err := l.inPlace(); err != nil {
			l.fail(fmt.Errorf("%w: %w", ErrFailed, err))
			continue
		}
		l.keepSaid()
		if s, err := l.intact(&before); err != nil {
			l.spoil(s, err)
		}
	}
}

const watchPeriod = time.Second

// fail poisons the log from outside a commit.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil || l.closed {
		return
	}
	l.failed, l.doubt = err, l.next-1
	if l.busy { // who leads tells
		return
	}
	l.busy = true
	l.lead(false)
}
