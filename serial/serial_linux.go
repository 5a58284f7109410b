package serial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

var parities = map[Parity]uint32{
	EvenParity: sys.ParityEven, OddParity: sys.ParityOdd, MarkParity: sys.ParityMark, SpaceParity: sys.ParitySpace,
}

// Port is an open serial port.
type Port struct {
	Path     string            // as opened, links resolved
	Baud     int               // the rate that the driver chose
	Accepted map[string]string // optional setting → "ok", or why the driver refused it

	device    sys.Device // while it is in opened; else zero
	exclusive bool       // the kernel refuses others

	fd int // bare: an os.File would put it into the runtime's poller, which would wake for every byte, too
}

// opened has the ports that are open in this program by their device, which may have several names,
// and several files.
var opened = struct {
	sync.Mutex
	names map[sys.Device]string // as given to Open
}{names: map[sys.Device]string{}}

// Open opens and sets the port at path. Bytes that the kernel holds already stay to be read.
//
// A device is open once: under whatever name it is asked for again, in this program or in another
// one that locks its ports, that is ErrInUse, and neither a byte nor a setting of the line is
// touched.
func Open(path string, cfg Config) (*Port, error) {
	cfg, err := cfg.Check()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) { // what it had to look at on the way is of no interest
		return nil, &fs.PathError{Op: "open", Path: path, Err: pe.Err}
	} else if err != nil {
		return nil, err
	}
	fd, err := sys.OpenTTY(real)
	switch {
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w; %s", err, access(real))
	case errors.Is(err, syscall.EBUSY):
		return nil, fmt.Errorf("open %s: %w by another program: `fuser -v %s` names it", path, ErrInUse, real)
	case err != nil:
		return nil, err
	}
	p := &Port{Path: real, fd: fd, Accepted: map[string]string{}}
	if err = p.take(path); err == nil {
		err = p.setUp(cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), p.Close())
	}
	return p, nil
}

// Adopt is a port that another process has opened, at a path, and passed on: with its lock, its
// settings, and what it holds. An error leaves the descriptor open.
func Adopt(fd int, path string, accepted map[string]string) (*Port, error) {
	device, err := sys.DeviceOf(fd)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", path, err)
	}
	t, err := sys.GetTermios(fd)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: not a serial port, or it is gone: %w", path, err)
	}
	opened.Lock()
	defer opened.Unlock()
	if device != (sys.Device{}) {
		opened.names[device] = path
	}
	return &Port{
		Path: path, Baud: int(t.Ispeed), Accepted: accepted, fd: fd, device: device,
		exclusive: !device.IsPTY() && sys.IsExclusive(fd),
	}, nil
}

// access says how to be let into a device.
func access(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "see who may use it: ls -l " + path
	}
	group := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if info.Mode()&0o060 != 0o060 || group == "root" {
		return fmt.Sprintf("only %s may use it; a rule of udev can give it to a group, as dialout", owner(info))
	}
	return fmt.Sprintf("it belongs to group %s: run `sudo usermod -aG %[1]s $USER`, and log in again", group)
}

func owner(info os.FileInfo) string {
	id := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	if u, err := user.LookupId(id); err == nil {
		return "user " + u.Username
	}
	return "user " + id
}

// Device is the device that a port is now, and its path; name is a path, or an identity as [List]
// gives it. All names of one device give the same.
func Device(name string) (d sys.Device, path string, err error) {
	if path, err = Resolve(name, ""); err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		d, err = sys.DeviceAt(path)
	}
	if err == nil && d == (sys.Device{}) {
		err = fmt.Errorf("%s is no device", path)
	}
	return d, path, err
}

// take makes the device this port's, or says who has it. The lock is of the file, so another file
// of the same device is known by the number of the device here, and in other programs by what the
// kernel refuses.
func (p *Port) take(path string) error {
	device, err := sys.DeviceOf(p.fd)
	if err != nil {
		return err
	}
	opened.Lock()
	defer opened.Unlock()
	isDevice := device != (sys.Device{})
	if name, ok := opened.names[device]; ok && isDevice {
		return fmt.Errorf("%w: it is the device that is open here as %s; take one of the two out", ErrInUse, name)
	}
	others := fmt.Errorf("%w by another program: `fuser -v %s` names it", ErrInUse, p.Path)
	if held, err := sys.LockFD(p.fd); held {
		return others
	} else if err != nil {
		return err
	}
	if sys.IsExclusive(p.fd) { // the privileged are let in all the same
		return others
	}
	if !device.IsPTY() { // the mark would outlive a kill: a pty's other end keeps it
		p.exclusive = sys.SetExclusive(p.fd, true) == nil // an error: it is no terminal, which setUp says
	}
	if isDevice {
		opened.names[device], p.device = path, device
	}
	return nil
}

func (p *Port) setUp(cfg Config) error {
	t, err := sys.GetTermios(p.fd)
	if err != nil {
		return fmt.Errorf("not a serial port: %w", err)
	}
	sys.SetLine(t, sys.Line{
		Baud: cfg.Baud, DataBits: cfg.DataBits, TwoStops: cfg.StopBits == 2, Parity: parities[cfg.Parity],
		RTSCTS: cfg.Flow == RTSCTS, XonXoff: cfg.Flow == XonXoff,
	})
	if err := sys.SetTermios(p.fd, t); err != nil {
		return err
	}
	// A driver may take a rate near the one asked for, and says which.
	if t, err = sys.GetTermios(p.fd); err != nil {
		return err
	}
	p.Baud = int(t.Ispeed)
	if note := rateNote(cfg.Baud, p.Baud); note != "" {
		p.Accepted["baud"] = note
	}
	p.options(cfg)
	return nil
}

// options asks for what a driver may refuse.
func (p *Port) options(cfg Config) {
	note := func(name string, err error) {
		if p.Accepted[name] = "ok"; err != nil {
			p.Accepted[name] = err.Error()
		}
	}
	name := filepath.Base(p.Path)
	if cfg.LowLatency {
		note("low_latency", sys.LowLatency(p.fd))
		timer := "/sys/bus/usb-serial/devices/" + name + "/latency_timer" // FTDI: ms that a byte waits in the adapter
		if _, err := os.Stat(timer); err == nil {
			note("latency_timer", os.WriteFile(timer, []byte("1"), 0))
		}
	}
	if cfg.FIFOTrigger > 0 {
		note("rx_trig_bytes", os.WriteFile("/sys/class/tty/"+name+"/rx_trig_bytes",
			fmt.Appendf(nil, "%d", cfg.FIFOTrigger), 0))
	}
	if r := cfg.RS485; r != nil {
		s := sys.RS485{
			Flags:              sys.RS485Enabled,
			DelayRTSBeforeSend: uint32(r.DelayBefore.Milliseconds()),
			DelayRTSAfterSend:  uint32(r.DelayAfter.Milliseconds()),
		}
		if r.RTSOnSend {
			s.Flags |= sys.RS485RTSOnSend
		} else {
			s.Flags |= sys.RS485RTSAfter
		}
		if r.Receive {
			s.Flags |= sys.RS485RxDuringTx
		}
		note("rs485", sys.SetRS485(p.fd, s))
	}
}

// FD is the descriptor, which does not block. It is the port's: do not close it.
func (p *Port) FD() int { return p.fd }

// Counters reads the driver's line counters; ErrNoCounters if it has none.
func (p *Port) Counters() (Counters, error) {
	c, err := sys.Counters(p.fd)
	if errors.Is(err, syscall.ENOTTY) || errors.Is(err, syscall.EINVAL) {
		return Counters{}, ErrNoCounters
	}
	return Counters{
		Overrun: uint64(uint32(c.Overrun)), BufferOverrun: uint64(uint32(c.BufOverrun)),
		Framing: uint64(uint32(c.Frame)), Parity: uint64(uint32(c.Parity)), Break: uint64(uint32(c.Brk)),
	}, err
}

// SetLines switches DTR and RTS.
func (p *Port) SetLines(dtr, rts bool) error {
	err := sys.SetModemLines(p.fd, sys.TIOCM_DTR, dtr)
	return errors.Join(err, sys.SetModemLines(p.fd, sys.TIOCM_RTS, rts))
}

// Close closes the port. Nobody may be reading it.
func (p *Port) Close() error {
	fd := p.fd
	p.fd = -1
	if p.exclusive {
		_ = sys.SetExclusive(fd, false) // an error: it is gone
	}
	if p.device != (sys.Device{}) {
		opened.Lock()
		delete(opened.names, p.device)
		opened.Unlock()
	}
	sys.UnlockFD(fd) // another process may have the descriptor, too, and give it back a little later
	return sys.CloseFD(fd)
}
