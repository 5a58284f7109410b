package asyncfile

import (
	"fmt"
	"io"
	"os"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// raw is what the std backend needs of a file; calls may do less than asked and may be interrupted.
type raw interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
	Name() string
}

// disk is a file of the operating system.
type disk struct{ *os.File }

func (d disk) Sync() error { return sys.Datasync(d.File) }

func (d disk) Size() (int64, error) {
	st, err := d.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// plain is the std backend without a window.
type plain struct {
	f      raw
	fast   *os.File // f, if it is one of the operating system's and not opened for direct access: reads spare a call
	path   string
	choice Choice
	direct bool
	poison poison
}

func newPlain(f raw, cfg Config, choice Choice) *plain {
	p := &plain{f: f, path: f.Name(), choice: choice, direct: cfg.Direct}
	if d, ok := f.(disk); ok && !cfg.Direct {
		p.fast = d.File
	}
	return p
}

func newStd(f raw, cfg Config, choice Choice) File {
	p := newPlain(f, cfg, choice)
	if cfg.Buffer > 0 {
		return newWindow(p, cfg)
	}
	return p
}

func (p *plain) ReadAt(b []byte, off int64) (int, error) {
	if p.fast != nil {
		n, err := p.fast.ReadAt(b, off)
		if err == nil || err == io.EOF {
			return n, err
		}
		return p.readOn(b, off, n, err)
	}
	if p.direct {
		if err := aligned("read", p.path, b, off); err != nil {
			return 0, err
		}
	}
	n, err := p.f.ReadAt(b, off)
	if err == nil && n == len(b) || err == io.EOF {
		return n, err
	}
	return p.readOn(b, off, n, err)
}

// readOn continues a read that was cut short.
func (p *plain) readOn(b []byte, off int64, n int, err error) (int, error) {
	for tries := 0; ; tries++ {
		switch {
		case n == len(b) && off >= 0:
			return n, nil
		case err != nil && !again(err), err == io.EOF:
			return n, err
		case tries == maxTries:
			return n, fmt.Errorf("read %s: %d of %d bytes at %d: %w", p.path, n, len(b), off, io.ErrNoProgress)
		}
		var m int
		if m, err = p.f.ReadAt(b[n:], off+int64(n)); m > 0 {
			n, tries = n+m, 0
		}
	}
}

func (p *plain) WriteAt(b []byte, off int64) (int, error) {
	if p.direct {
		if err := aligned("write", p.path, b, off); err != nil {
			return 0, err
		}
	}
	n := 0
	for tries := 0; ; tries++ {
		m, err := p.f.WriteAt(b[n:], off+int64(n))
		if m > 0 {
			n, tries = n+m, 0
		}
		switch {
		case n == len(b) && off >= 0:
			return n, nil
		case err != nil && !again(err) && err != io.ErrShortWrite:
			return n, err
		case tries == maxTries:
			return n, fmt.Errorf("write %s: %d of %d bytes at %d: %w", p.path, n, len(b), off, io.ErrShortWrite)
		}
	}
}

func (p *plain) Sync() error { return p.poison.sync(p.path, p.f.Sync) }

func (p *plain) Truncate(size int64) error {
	for tries := 0; ; tries++ {
		if err := p.f.Truncate(size); err == nil || !again(err) || tries == maxTries {
			return err
		}
	}
}

func (p *plain) Size() (int64, error) { return p.f.Size() }
func (p *plain) Close() error         { return p.f.Close() }
func (p *plain) Choice() Choice       { return p.choice }
