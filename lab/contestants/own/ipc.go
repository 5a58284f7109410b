package own

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

// talk sends messages to another process: by our ring, which spins and sleeps (how=ring) or only
// sleeps (how=futex), by a Unix socket (unix, seqpacket), a pipe, a FIFO with bufio, or TCP. Load
// "flood": one way, as many as go; "turns": there and back, one at a time; "wake": the same, each
// after a pause of 1 ms, when the other one sleeps.
func talk(t *contestant.Turn) error {
	l, end, err := connect(t)
	if err != nil {
		return err
	}
	defer end()
	load := t.Text("load")
	if load != "flood" && load != "turns" && load != "wake" {
		return fmt.Errorf("load=%s: want flood, turns or wake", load)
	}
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
func talkBack(t *contestant.Turn) error {
	l, err := other(t.Text("how"))
	if err != nil {
		return err
	}
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
func second(how string, files ...*os.File) (end func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(exe, "lab", "contestant", "talk-back", "how="+how)
	c.ExtraFiles, c.Stderr = files, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}, nil
}

func ringFor(how string) ipc.RingConfig {
	cfg := ipc.RingConfig{Slot: messageSize, Size: 128 << 10}
	if how == "futex" {
		cfg.Spin = -1
	}
	return cfg
}

// connect starts the other process and returns the way to it.
func connect(t *contestant.Turn) (l line, end func(), err error) {
	switch how := t.Text("how"); how {
	case "ring", "futex":
		there, err1 := ipc.Create(ringFor(how))
		back, err2 := ipc.Create(ringFor(how))
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		s, err1 := there.Sender()
		r, err2 := back.Receiver()
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		end, err = second(how, there.File(), back.File())
		return ringLine{s, r}, end, err
	case "pipe":
		r1, w1, err1 := os.Pipe()
		r2, w2, err2 := os.Pipe()
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		end, err = second(how, r1, w2)
		return streamLine{w1, r2}, end, err
	case "fifo":
		return connectFIFO(t)
	case "unix", "seqpacket", "tcp":
		return connectSocket(t, how)
	default:
		return nil, nil, fmt.Errorf("how=%s: want ring, futex, unix, seqpacket, pipe, fifo or tcp", how)
	}
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
	end, err := second("fifo", files[0], files[1])
	return buffered{bufio.NewWriter(files[0]), streamLine{r: bufio.NewReader(files[1])}}, end, err
}

func connectSocket(t *contestant.Turn, how string) (line, func(), error) {
	network := map[string]string{"unix": "unix", "seqpacket": "unixpacket", "tcp": "tcp"}[how]
	addr := "127.0.0.1:0"
	if how != "tcp" {
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
	ours, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	theirs, err := ln.Accept()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	f, err := theirs.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	end, err := second(how, f)
	if how == "seqpacket" { // a read is a packet
		return streamLine{ours, ours}, end, err
	}
	return streamLine{ours, bufio.NewReaderSize(ours, 64<<10)}, end, err
}

// other is the way from the other process.
func other(how string) (line, error) {
	there, back := os.NewFile(3, "there"), os.NewFile(4, "back")
	switch how {
	case "pipe":
		return streamLine{back, bufio.NewReaderSize(there, 64<<10)}, nil
	case "fifo":
		return buffered{bufio.NewWriter(back), streamLine{r: bufio.NewReader(there)}}, nil
	case "unix", "seqpacket", "tcp":
		c, err := net.FileConn(there)
		if how == "seqpacket" {
			return streamLine{c, c}, err
		}
		return streamLine{c, bufio.NewReaderSize(c, 64<<10)}, err
	}
	a, err1 := ipc.Open(there, ringFor(how))
	b, err2 := ipc.Open(back, ringFor(how))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	r, err1 := a.Receiver()
	s, err2 := b.Sender()
	return ringLine{s, r}, errors.Join(err1, err2)
}
