package processipc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// messageSize is that of the messages between two processes.
const messageSize = 128

// line carries messages one after the other.
type line interface {
	send(b []byte) error
	receive(b []byte) error
}

type ringLine struct {
	s *ipc.Sender
	r *ipc.Receiver
}

func (l ringLine) send(b []byte) error { return l.s.Send(b, -1) }
func (l ringLine) receive(b []byte) error {
	_, err := l.r.Receive(b, -1)
	return err
}

type streamLine struct {
	w io.Writer
	r io.Reader
}

func (l streamLine) send(b []byte) error {
	_, err := l.w.Write(b)
	return err
}

func (l streamLine) receive(b []byte) error {
	_, err := io.ReadFull(l.r, b)
	return err
}

// buffered is a stream whose writer keeps each message and then is told to let it go.
type buffered struct {
	w *bufio.Writer
	streamLine
}

func (l buffered) send(b []byte) error {
	_, err := l.w.Write(b)
	return errors.Join(err, l.w.Flush())
}

// way is a way to another process: how one starts that and is connected to it, and the way back, as
// the other one has it.
type way struct {
	connect func(t *contestant.Turn) (l line, end func(), err error)
	back    func() (line, error)
}

// secondVariable is set for the other process.
const secondVariable = "TALLYWHEEL_LAB_SECOND"

// talk sends messages to another process. Load "flood": one way, as many as go; "turns": there and
// back, one at a time; "wake": the same, each after a pause of 1 ms, when the other one sleeps.
func talk(w way) contestant.Work {
	return func(t *contestant.Turn) error {
		if os.Getenv(secondVariable) == "" {
			return w.talk(t)
		}
		l, err := w.back()
		if err != nil {
			return err
		}
		return talkBack(l)
	}
}

func (w way) talk(t *contestant.Turn) error {
	load := t.Text("load")
	if load != "flood" && load != "turns" && load != "wake" {
		return fmt.Errorf("load=%s: want flood, turns or wake", load)
	}
	l, end, err := w.connect(t)
	if err != nil {
		return err
	}
	defer end()
	b := make([]byte, messageSize)
	turn := func() error {
		b[0] = 1
		if err := l.send(b); err != nil {
			return err
		}
		return l.receive(b)
	}
	if err := turn(); err != nil { // it is there
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	n := uint64(0)
	var latencies []int64
	for now := time.Now(); now.Before(until); n++ {
		switch load {
		case "flood":
			if b[0] = 0; n%256 == 0 {
				now = time.Now()
			}
			err = l.send(b)
		case "wake":
			time.Sleep(time.Millisecond)
			now = time.Now()
			fallthrough
		default:
			then := now
			err = turn()
			now = time.Now()
			latencies = append(latencies, int64(now.Sub(then)))
		}
		if err != nil {
			return err
		}
	}
	if load == "flood" { // until the last one is there
		if err := turn(); err != nil {
			return err
		}
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	v := []contestant.Value{{Metric: "MB_per_s", V: float64(n) * messageSize / 1e6 / took.Seconds()}}
	return t.Result(took, n, append(v, contestant.Latencies(latencies)...)...)
}

// talkBack is the other process: it sends back the messages whose first byte asks for it.
func talkBack(l line) error {
	for b := make([]byte, messageSize); ; {
		err := l.receive(b)
		if err == nil && b[0] == 1 {
			err = l.send(b)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// second starts this program as the other process, which has files from descriptor 3.
func second(files ...*os.File) (end func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(exe, os.Args[1:]...)
	c.Env = append(os.Environ(), secondVariable+"=1")
	c.ExtraFiles, c.Stderr = files, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := sys.Start(c.Start); err != nil {
		return nil, err
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}, nil
}

// handed are the files that the other process has.
func handed() (there, back *os.File) { return os.NewFile(3, "there"), os.NewFile(4, "back") }

// rings are our rings, one for each direction, which spin for so long before they sleep.
func rings(spin time.Duration) way {
	cfg := ipc.RingConfig{Slot: messageSize, Size: 128 << 10, Spin: spin}
	return way{
		connect: func(*contestant.Turn) (line, func(), error) {
			there, err1 := ipc.Create(cfg)
			back, err2 := ipc.Create(cfg)
			if err := errors.Join(err1, err2); err != nil {
				return nil, nil, err
			}
			s, err1 := there.Sender()
			r, err2 := back.Receiver()
			if err := errors.Join(err1, err2); err != nil {
				return nil, nil, err
			}
			end, err := second(there.File(), back.File())
			return ringLine{s, r}, end, err
		},
		back: func() (line, error) {
			there, back := handed()
			a, err1 := ipc.Open(there, cfg)
			b, err2 := ipc.Open(back, cfg)
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			r, err1 := a.Receiver()
			s, err2 := b.Sender()
			return ringLine{s, r}, errors.Join(err1, err2)
		},
	}
}

// pipes are two of them.
var pipes = way{
	connect: func(*contestant.Turn) (line, func(), error) {
		r1, w1, err1 := os.Pipe()
		r2, w2, err2 := os.Pipe()
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		end, err := second(r1, w2)
		return streamLine{w1, r2}, end, err
	},
	back: func() (line, error) {
		there, back := handed()
		return streamLine{back, bufio.NewReaderSize(there, 64<<10)}, nil
	},
}

// fifos are two pipes with names, each behind a buffer.
var fifos = way{
	connect: connectFIFO,
	back: func() (line, error) {
		there, back := handed()
		return buffered{bufio.NewWriter(back), streamLine{r: bufio.NewReader(there)}}, nil
	},
}

func connectFIFO(t *contestant.Turn) (line, func(), error) {
	dir, err := os.MkdirTemp(t.Text("dir"), "fifo-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	var files [2]*os.File
	for i, name := range []string{"there", "back"} {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			return nil, nil, err
		}
		if files[i], err = os.OpenFile(path, os.O_RDWR, 0); err != nil { // Linux lets one open both ends
			return nil, nil, err
		}
	}
	end, err := second(files[0], files[1])
	return buffered{bufio.NewWriter(files[0]), streamLine{r: bufio.NewReader(files[1])}}, end, err
}

// stream and packets are how messages are taken from a connection: packets come one a read.
func stream(c net.Conn) line  { return streamLine{c, bufio.NewReaderSize(c, 64<<10)} }
func packets(c net.Conn) line { return streamLine{c, c} }

// socket is a connection of a network.
func socket(network string, of func(net.Conn) line) way {
	return way{
		connect: func(*contestant.Turn) (line, func(), error) {
			ours, f, err := connected(network)
			if err != nil {
				return nil, nil, err
			}
			defer f.Close()
			end, err := second(f)
			return of(ours), end, err
		},
		back: func() (line, error) {
			there, _ := handed()
			c, err := net.FileConn(there)
			if err != nil {
				return nil, err
			}
			return of(c), nil
		},
	}
}

// connected is both ends of a connection, the other one as a file to hand over.
func connected(network string) (ours net.Conn, theirs *os.File, err error) {
	addr := "127.0.0.1:0"
	if network != "tcp" {
		dir, err := os.MkdirTemp("", "ipc-") // a path of at most 107 bytes
		if err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
		addr = filepath.Join(dir, "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if ours, err = net.Dial(network, ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	other, err := ln.Accept()
	if err != nil {
		return nil, nil, err
	}
	defer other.Close()
	theirs, err = other.(interface{ File() (*os.File, error) }).File()
	return ours, theirs, err
}
