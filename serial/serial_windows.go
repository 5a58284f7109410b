package serial

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

var parities = map[Parity]uint8{
	EvenParity: sys.ParityEven, OddParity: sys.ParityOdd, MarkParity: sys.ParityMark, SpaceParity: sys.ParitySpace,
}

// Port is an open serial port.
type Port struct {
	Path     string            // as opened, \\.\COM3
	Baud     int               // the rate that the driver chose
	Accepted map[string]string // "baud": the rate is not the one that was asked for

	file *os.File // overlapped: a read waits in Go's poller

	mu    sync.Mutex // guards count: Windows forgets what it has said
	count Counters
}

// Open opens and sets the port at path: COM3, or \\.\COM3. Bytes that Windows holds already stay to
// be read.
//
// Windows opens a port once: asked for again, by this program or by another one, that is ErrInUse.
// Config.RS485, LowLatency and FIFOTrigger are errors that wrap [errors.ErrUnsupported]: there they
// are properties of the driver.
func Open(path string, cfg Config) (*Port, error) {
	cfg, err := cfg.Check()
	if err == nil {
		err = refuse(cfg)
	}
	name := strings.TrimPrefix(path, `\\.\`)
	if err == nil && (name == "" || strings.ContainsAny(name, `\/:`)) { // a file would be opened
		err = errors.New("no name of a port: want one as List gives it, COM3")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	p := &Port{Path: `\\.\` + name, Accepted: map[string]string{}}
	p.file, err = sys.OpenCOM(p.Path) // without the prefix there are nine ports
	const sharingViolation = syscall.Errno(32)
	switch {
	case errors.Is(err, syscall.ERROR_ACCESS_DENIED), errors.Is(err, sharingViolation):
		return nil, fmt.Errorf("open %s: %w by another program, or this user may not open it", path, ErrInUse)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w; %s", err, there())
	case err != nil:
		return nil, err
	}
	p.Baud, err = sys.SetCOM(p.file, sys.Line{
		Baud: cfg.Baud, DataBits: cfg.DataBits, TwoStops: cfg.StopBits == 2, Parity: parities[cfg.Parity],
		RTSCTS: cfg.Flow == RTSCTS, XonXoff: cfg.Flow == XonXoff,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: not a serial port, or it cannot be set so: %w", path, err),
			p.Close())
	}
	if note := rateNote(cfg.Baud, p.Baud); note != "" {
		p.Accepted["baud"] = note
	}
	return p, nil
}

// refuse reports what Windows leaves to the driver's properties.
func refuse(cfg Config) error {
	for what, asked := range map[string]bool{
		"RS485": cfg.RS485 != nil, "LowLatency": cfg.LowLatency,
		"FIFOTrigger": cfg.FIFOTrigger != 0,
	} {
		if asked {
			return fmt.Errorf("%s: %w on Windows: set it in the properties of the port, in the Device Manager", what,
				errors.ErrUnsupported)
		}
	}
	return nil
}

// there says which ports there are.
func there() string {
	ports, err := List()
	if err != nil || len(ports) == 0 {
		return "there is no serial port"
	}
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Path
	}
	return "there are " + strings.Join(names, ", ")
}

// Read reads what the port has, and waits for the first byte if it has none. Close ends it, with
// [os.ErrClosed]. One goroutine at a time may read.
func (p *Port) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	// A read of Windows ends with all that it asks for. So it asks for what there is, or for one.
	waiting, err := p.look()
	if err != nil {
		return 0, err
	}
	if waiting == 0 {
		if n, err = p.file.Read(b[:1]); err != nil || len(b) == 1 {
			return n, err
		}
		if waiting, err = p.look(); waiting == 0 || err != nil {
			return n, nil //nolint:nilerr // the next read has the error
		}
	}
	more, err := p.file.Read(b[n:min(len(b), n+waiting)])
	if n > 0 {
		err = nil // … as here
	}
	return n + more, err
}

// Write gives all of b to the driver, and waits where that has no room. It goes on beside a Read.
func (p *Port) Write(b []byte) (int, error) { return sys.WriteCOM(p.file, b) }

// SetReadDeadline has a Read that waits end at t with [os.ErrDeadlineExceeded]; the zero time:
// never.
func (p *Port) SetReadDeadline(t time.Time) error { return p.file.SetReadDeadline(t) }

// look is how many bytes wait. It counts what has happened on the line.
func (p *Port) look() (waiting int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting, happened, err := sys.COMState(p.file)
	for bit, n := range map[uint32]*uint64{
		sys.LineOverrun: &p.count.Overrun, sys.LineBufferOverrun: &p.count.BufferOverrun,
		sys.LineFraming: &p.count.Framing,
		sys.LineParity:  &p.count.Parity, sys.LineBreak: &p.count.Break,
	} {
		if happened&bit != 0 {
			*n++
		}
	}
	return waiting, err
}

// Counters is what has happened on the line since the port was opened.
func (p *Port) Counters() (Counters, error) {
	_, err := p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, err
}

// SetLines switches DTR and RTS.
func (p *Port) SetLines(dtr, rts bool) error { return sys.SetCOMLines(p.file, dtr, rts) }

// Close closes the port, and ends a Read that waits.
func (p *Port) Close() error { return p.file.Close() }
