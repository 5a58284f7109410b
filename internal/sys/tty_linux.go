package sys

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Termios is struct termios2: with BOTHER in Cflag, Ispeed and Ospeed are the rate in baud.
type Termios = unix.Termios

// ICounter is struct serial_icounter_struct: what a UART driver counts.
type ICounter struct {
	CTS, DSR, RNG, DCD          int32
	RX, TX                      int32
	Frame, Overrun, Parity, Brk int32
	BufOverrun                  int32
	_                           [9]int32
}

// SerialStruct is struct serial_struct, of which only Type and Flags are ours to read and write.
type SerialStruct struct {
	Type, Line    int32
	Port          uint32
	IRQ           int32
	Flags         int32
	XmitFifoSize  int32
	CustomDivisor int32
	BaudBase      int32
	_             [128]byte // the rest; longer than any kernel's, so that it fits on every target
}

// RS485 is struct serial_rs485.
type RS485 struct {
	Flags              uint32
	DelayRTSBeforeSend uint32 // ms
	DelayRTSAfterSend  uint32 // ms
	_                  [5]uint32
}

// Flags of RS485 and of SerialStruct.
const (
	RS485Enabled     = 1 << 0
	RS485RTSOnSend   = 1 << 1
	RS485RTSAfter    = 1 << 2
	RS485RxDuringTx  = 1 << 4
	SerialLowLatency = 1 << 13
)

const (
	tiocgicount = 0x545D
	tiocgserial = 0x541E
	tiocsserial = 0x541F
	tiocgrs485  = 0x542E
	tiocsrs485  = 0x542F
)

func ioctl(fd int, name string, req uintptr, arg unsafe.Pointer) error {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg))
		switch e {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return os.NewSyscallError("ioctl "+name, e)
	}
}

// OpenTTY opens a terminal device for reading and writing without becoming its controlling
// terminal, and without waiting for a carrier.
func OpenTTY(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			if err != nil {
				return -1, &os.PathError{Op: "open", Path: path, Err: err}
			}
			return fd, nil
		}
	}
}

// Device says which device a file is. The zero value is none.
type Device struct {
	number uint64 // st_rdev
	mount  uint64 // of a pty's slave st_dev: each mount of devpts counts its own
}

// IsPTY reports whether it is the slave of a pseudo-terminal.
func (d Device) IsPTY() bool {
	major := unix.Major(d.number)
	return 136 <= major && major <= 143 // UNIX98_PTY_SLAVE_MAJOR and those behind it
}

func deviceOf(st *unix.Stat_t) (d Device) {
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return d
	}
	if d.number = uint64(st.Rdev); d.IsPTY() {
		d.mount = uint64(st.Dev)
	}
	return d
}

// DeviceOf is the device that is open.
func DeviceOf(fd int) (Device, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return deviceOf(&st), os.NewSyscallError("fstat", err)
}

// DeviceAt is the device at a path, links followed.
func DeviceAt(path string) (Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Device{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return deviceOf(&st), nil
}

// IsExclusive reports whether a terminal is marked to be opened by nobody else (Linux 3.8).
func IsExclusive(fd int) bool {
	on, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL)
	return err == nil && on != 0
}

// SetExclusive has the kernel refuse those who open a terminal from now on, but for the privileged,
// or let them in again. The mark goes when nobody has the terminal open any more; of a pty, the
// master counts.
func SetExclusive(fd int, on bool) error {
	req := uint(unix.TIOCNXCL)
	if on {
		req = unix.TIOCEXCL
	}
	return os.NewSyscallError("ioctl TIOCEXCL", unix.IoctlSetInt(fd, req, 0))
}

// GetTermios reads the settings of a terminal.
func GetTermios(fd int) (*Termios, error) {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS2)
	return t, os.NewSyscallError("ioctl TCGETS2", err)
}

// SetTermios changes them at once.
func SetTermios(fd int, t *Termios) error {
	return os.NewSyscallError("ioctl TCSETS2", unix.IoctlSetTermios(fd, unix.TCSETS2, t))
}

// Counters reads the driver's line counters.
func Counters(fd int) (c ICounter, err error) {
	return c, ioctl(fd, "TIOCGICOUNT", tiocgicount, unsafe.Pointer(&c))
}

// GetSerial asks the driver how the UART is set; a pty has none.
func GetSerial(fd int) (s SerialStruct, err error) {
	return s, ioctl(fd, "TIOCGSERIAL", tiocgserial, unsafe.Pointer(&s))
}

// LowLatency asks the driver to hand bytes on without delay.
func LowLatency(fd int) error {
	s, err := GetSerial(fd)
	if err != nil {
		return err
	}
	s.Flags |= SerialLowLatency
	return ioctl(fd, "TIOCSSERIAL", tiocsserial, unsafe.Pointer(&s))
}

// SetRS485 changes the RS-485 mode of the driver.
func SetRS485(fd int, r RS485) error {
	return ioctl(fd, "TIOCSRS485", tiocsrs485, unsafe.Pointer(&r))
}

// SetModemLines switches the lines in mask on or off.
func SetModemLines(fd, mask int, on bool) error {
	req := uint(unix.TIOCMBIC)
	if on {
		req = unix.TIOCMBIS
	}
	return os.NewSyscallError("ioctl TIOCMBIS", unix.IoctlSetPointerInt(fd, req, mask))
}

// Modem lines.
const (
	TIOCM_DTR = unix.TIOCM_DTR
	TIOCM_RTS = unix.TIOCM_RTS
)

// OpenPTY opens a pseudo-terminal and returns its master, which does not block, and the path of its
// slave.
func OpenPTY() (master int, slave string, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, "", &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, "", os.NewSyscallError("ioctl TIOCGPTN", err)
	}
	return fd, "/dev/pts/" + itoa(n), nil
}

func itoa(n uint32) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// Write writes to a descriptor that does not block; EAGAIN writes nothing.
func Write(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Write(fd, b)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, nil
		}
		return max(n, 0), os.NewSyscallError("write", err)
	}
}

// Line is the form of a character and the flow control of a line.
type Line struct {
	Baud, DataBits            int
	TwoStops, RTSCTS, XonXoff bool   // XonXoff: of what is received
	Parity                    uint32 // 0 or one of the parities
}

// Parities, as bits of c_cflag.
const (
	ParityEven  = unix.PARENB
	ParityOdd   = unix.PARENB | unix.PARODD
	ParityMark  = unix.PARENB | unix.PARODD | unix.CMSPAR
	ParitySpace = unix.PARENB | unix.CMSPAR
)

// SetLine writes a raw line into t: no processing of input or output, reads return what is there,
// any rate.
func SetLine(t *Termios, l Line) {
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CREAD | unix.CLOCAL | unix.BOTHER | l.Parity
	t.Cflag |= []uint32{unix.CS5, unix.CS6, unix.CS7, unix.CS8}[l.DataBits-5]
	t.Ispeed, t.Ospeed = uint32(l.Baud), uint32(l.Baud)
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if l.TwoStops {
		t.Cflag |= unix.CSTOPB
	}
	if l.RTSCTS {
		t.Cflag |= unix.CRTSCTS
	}
	if l.XonXoff {
		// Not IXON, which takes both characters out of what is read: they may be data, and nothing
		// is sent that the other side could hold up.
		t.Iflag |= unix.IXOFF
		t.Cc[unix.VSTART], t.Cc[unix.VSTOP] = 0x11, 0x13 // XON and XOFF of ASCII
	}
}

// Unsent is how many bytes the driver has still to send; of a TCP connection, how many the peer's
// kernel has not acknowledged, the end of sending among them.
func Unsent(fd int) (n int, err error) {
	n, err = unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	return n, os.NewSyscallError("ioctl TIOCOUTQ", err)
}
