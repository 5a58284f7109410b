package serialmmap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/readers"
)

// mapTTY asks whether a tty can be mapped into memory, as one of the articles does it.
func mapTTY(t *contestant.Turn) error {
	f, err := readers.OpenPort(t.Paths()[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = syscall.Mmap(int(f.Fd()), 0, 65536, syscall.PROT_READ, syscall.MAP_SHARED); err != nil {
		return t.Answer(false, "mmap of a tty: %v", err)
	}
	return t.Answer(true, "a tty was mapped")
}

// mapUIO maps the registers of a device that a driver of UIO has.
func mapUIO(*contestant.Turn) (contestant.Finding, error) {
	devices, err := filepath.Glob("/dev/uio*")
	if err != nil {
		return contestant.Finding{}, err
	}
	if len(devices) == 0 {
		return contestant.Finding{}, errors.New("no /dev/uio*: no driver of UIO has a device here")
	}
	f, err := os.OpenFile(devices[0], os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return contestant.Finding{}, err // it may be there, and not for us
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return contestant.Finding{Text: fmt.Sprintf("mmap of %s: %v", devices[0], err)}, nil
	}
	return contestant.Finding{Yes: true, Text: devices[0] + " was mapped"}, syscall.Munmap(b)
}

// pages is a file of the page cache whose pages are touched, one byte of each.
type pages struct {
	f    *os.File
	size int // of a page
	b    []byte
	one  []byte
	sum  byte
}

const pageCount = 4096

// touching does the same to all pages again and again.
func touching(touch func(p *pages) error) contestant.Work {
	return func(t *contestant.Turn) error {
		f, err := os.Open(t.Text("file"))
		if err != nil {
			return err
		}
		defer f.Close()
		p := &pages{f: f, size: os.Getpagesize(), one: make([]byte, os.Getpagesize())}
		if err := p.mapAgain(); err != nil {
			return err
		}
		var failed error
		err = contestant.Repeat(t, pageCount, p.size, func() { failed = errors.Join(failed, touch(p)) })
		return errors.Join(err, failed)
	}
}

// mapAgain maps the file, none of whose pages is mapped then.
func (p *pages) mapAgain() (err error) {
	if p.b != nil {
		err = syscall.Munmap(p.b)
	}
	if err == nil {
		p.b, err = syscall.Mmap(int(p.f.Fd()), 0, pageCount*p.size, syscall.PROT_READ, syscall.MAP_SHARED)
	}
	if err == nil {
		err = sys.AdviseRandom(p.b) // no more than the page that is asked for
	}
	return err
}

// mapped touches pages that are mapped.
func (p *pages) mapped() error {
	for i := range pageCount {
		p.sum += p.b[i*p.size]
	}
	return nil
}

// fault touches pages that are not mapped yet.
func (p *pages) fault() error { return errors.Join(p.mapAgain(), p.mapped()) }

// pread reads each page.
func (p *pages) pread() error {
	for i := range pageCount {
		if _, err := p.f.ReadAt(p.one, int64(i*p.size)); err != nil {
			return err
		}
		p.sum += p.one[0]
	}
	return nil
}
