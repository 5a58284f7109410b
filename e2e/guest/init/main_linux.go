// Command init is the first process of a guest: it loads drivers, then does what the host asks for,
// one line of JSON at a time, over the guest's second serial port; or is
// a shell on its console, as a board has one. See package guest.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// control is where the host speaks.
const control = "/dev/ttyS1"

// request is what the host wants; which fields count is said at each operation.
type request struct {
	Do   string   `json:"do"`
	Args []string `json:"args,omitempty"`
	N    int      `json:"n,omitempty"`
}

// answer is what came of it.
type answer struct {
	Out string `json:"out,omitempty"`
	Err string `json:"err,omitempty"`
	N   int    `json:"n,omitempty"`
}

// program is one that was started.
type program struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

func main() {
	if err := live(); err != nil {
		fmt.Println("init:", err)
	}
	if err := sys.PowerOff(); err != nil {
		fmt.Println("init:", err)
	}
}

func live() error {
	if err := sys.MountAsInit(); err != nil {
		return err
	}
	if err := errors.Join(loopback(), drivers("/modules")); err != nil {
		return err
	}
	if slices.Contains(os.Args, "shell") { // behind what the kernel does not know of its own arguments
		return shell(os.Stdin, os.Stdout)
	}
	port, err := openRaw(control)
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(port), json.NewEncoder(port)
	started := map[int]*program{}
	if err := out.Encode(answer{Out: "ready"}); err != nil {
		return err
	}
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return err
		}
		if r.Do == "end" {
			return nil
		}
		a, err := do(started, r)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// shell is what a board has on its console: it carries out a line at a time, words with nothing but
// blanks between, until one says exit.
func shell(in io.Reader, out io.Writer) error {
	for lines := bufio.NewScanner(in); ; {
		fmt.Fprint(out, "# ")
		if !lines.Scan() {
			return lines.Err()
		}
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0:
		case words[0] == "exit":
			return nil
		default:
			c := exec.Command(words[0], words[1:]...)
			c.Stdout, c.Stderr = out, out
			if err := c.Run(); err != nil {
				fmt.Fprintf(out, "%s: %v\n", words[0], err)
			}
		}
	}
}

// loopback brings up the network of the guest alone.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// drivers loads the modules of a folder, in the order of their names.
func drivers(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, m := range all {
		f, err := os.Open(dir + "/" + m.Name())
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name(), err)
		}
	}
	return nil
}

// openRaw opens a serial port that hands on bytes as they are.
func openRaw(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return f, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

// do does one thing.
func do(started map[int]*program, r request) (a answer, err error) {
	arg := func(i int) string { return append(r.Args, "", "", "")[i] }
	switch r.Do {
	case "start": // a program; N is its number
		p := &program{cmd: exec.Command(r.Args[0], r.Args[1:]...)}
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
		if err = p.cmd.Start(); err == nil {
			a.N = p.cmd.Process.Pid
			started[a.N] = p
		}
	case "wait": // for the end of program N: what it has printed, and its exit code
		p := started[r.N]
		_ = p.cmd.Wait()
		return answer{Out: p.out.String(), Err: p.err.String(), N: p.cmd.ProcessState.ExitCode()}, nil
	case "signal": // program N
		number, _ := strconv.Atoi(arg(0))
		err = syscall.Kill(r.N, syscall.Signal(number))
	case "get": // an address
		a.Out, err = get(arg(0))
	case "read": // a file
		var b []byte
		b, err = os.ReadFile(arg(0))
		a.Out = string(b)
	case "write": // a file, and its text
		err = os.WriteFile(arg(0), []byte(arg(1)), 0o600)
	case "hold": // a port open, for as long as the guest lives: its name is not free then
		_, err = unix.Open(arg(0), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	case "counters": // of a port, as TIOCGICOUNT has them
		a.Out, err = counters(arg(0))
	case "overrun": // the UART at an I/O address, N times
		var at uint64
		if at, err = strconv.ParseUint(strings.TrimPrefix(arg(0), "0x"), 16, 16); err == nil {
			err = overrun(int64(at), r.N)
		}
	default:
		err = fmt.Errorf("there is nothing to do by the name of %q", r.Do)
	}
	return a, err
}

func get(url string) (string, error) {
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// counters reads what the driver has counted, in the order of struct serial_icounter_struct.
func counters(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var c [20]int32
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGICOUNT, uintptr(unsafe.Pointer(&c))); e != 0 {
		return "", e
	}
	b, err := json.Marshal(map[string]int32{
		"rx": c[4], "tx": c[5], "framing": c[6], "overrun": c[7], "parity": c[8], "break": c[9],
		"buffer_overrun": c[10],
	})
	return string(b), err
}

// Registers of a 16550, from its I/O address on.
const (
	uartData, uartInterrupts, uartModem = 0, 1, 4
	uartLoop                            = 0x10 // in uartModem: what is sent is received
	uartFIFO                            = 16
)

// overrun fills the FIFO of a UART with nobody to empty it, and one byte more, so that the chip
// says once that it was overrun: by its own loop, with its interrupts off meanwhile.
func overrun(at int64, times int) error {
	port, err := os.OpenFile("/dev/port", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	read := func(register int64) byte {
		var b [1]byte
		_, e := port.ReadAt(b[:], at+register)
		err = errors.Join(err, e)
		return b[0]
	}
	write := func(register int64, b byte) {
		_, e := port.WriteAt([]byte{b}, at+register)
		err = errors.Join(err, e)
	}
	for range times {
		interrupts, modem := read(uartInterrupts), read(uartModem)
		write(uartInterrupts, 0)
		write(uartModem, modem|uartLoop)
		for range uartFIFO + 1 {
			write(uartData, 0)
		}
		write(uartModem, modem)
		write(uartInterrupts, interrupts)
	}
	return err
}
