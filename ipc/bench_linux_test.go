package ipc

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// Benchmarks between two processes: each message has 128 bytes. Run them on a machine that does
// nothing else, with at least two CPUs.

const benchSize = 128

// line carries messages one way after the other.
type line interface {
	send(b []byte) error
	recv(b []byte) error
}

type ringLine struct {
	s *Sender
	r *Receiver
}

func (l ringLine) send(b []byte) error { return l.s.Send(b, -1) }
func (l ringLine) recv(b []byte) error {
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

func (l streamLine) recv(b []byte) error {
	_, err := io.ReadFull(l.r, b)
	return err
}

const benchKind = "TALLYWHEEL_IPC_BENCH"

func benchRing(kind string) RingConfig {
	cfg := RingConfig{Slot: benchSize, Size: 128 << 10}
	if kind == "ring-futex" {
		cfg.Spin = -1
	}
	return cfg
}

// answer is the other process: it sends back the messages whose first byte asks for it.
func answer() error {
	l, err := otherLine(os.Getenv(benchKind))
	if err != nil {
		return err
	}
	for b := make([]byte, benchSize); ; {
		err := l.recv(b)
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

func otherLine(kind string) (line, error) {
	there, back := os.NewFile(4, "there"), os.NewFile(5, "back")
	switch kind {
	case "pipe":
		return streamLine{back, bufio.NewReaderSize(there, 64<<10)}, nil
	case "unix":
		c, err := net.FileConn(there)
		return streamLine{c, bufio.NewReaderSize(c, 64<<10)}, err
	case "seqpacket":
		c, err := net.FileConn(there)
		return streamLine{c, c}, err
	}
	a, err := Open(there, benchRing(kind))
	if err != nil {
		return nil, err
	}
	b, err := Open(back, benchRing(kind))
	if err != nil {
		return nil, err
	}
	r, err := a.Receiver()
	if err != nil {
		return nil, err
	}
	s, err := b.Sender()
	return ringLine{s, r}, err
}

// connect starts the other process of a benchmark.
func connect(b *testing.B, kind string) line {
	b.Helper()
	b.Setenv(benchKind, kind)
	switch kind {
	case "pipe":
		r, w, err := os.Pipe()
		r2, w2, err2 := os.Pipe()
		if err != nil || err2 != nil {
			b.Fatal(err, err2)
		}
		child(b, "answer", r, w2)
		b.Cleanup(func() { _, _, _, _ = r.Close(), w.Close(), r2.Close(), w2.Close() })
		return streamLine{w, r2}
	case "unix", "seqpacket":
		network := map[string]string{"unix": "unix", "seqpacket": "unixpacket"}[kind]
		l, err := net.Listen(network, b.TempDir()+"/s")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		ours, err := net.Dial(network, l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		theirs, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		f, err := theirs.(*net.UnixConn).File()
		if err != nil {
			b.Fatal(err)
		}
		child(b, "answer", f)
		_, _ = f.Close(), theirs.Close()
		b.Cleanup(func() { _ = ours.Close() })
		return streamLine{ours, ours}
	}
	there, err := Create(benchRing(kind))
	if err != nil {
		b.Fatal(err)
	}
	back, err := Create(benchRing(kind))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = there.Close(), back.Close() })
	l := ringLine{take(b, there.Sender), take(b, back.Receiver)}
	child(b, "answer", there.File(), back.File())
	return l
}

var benchKinds = []string{"ring", "ring-futex", "pipe", "unix", "seqpacket"}

// BenchmarkMessages sends messages as fast as they are taken.
func BenchmarkMessages(b *testing.B) {
	for _, kind := range benchKinds {
		b.Run(kind, func(b *testing.B) {
			l := connect(b, kind)
			msg := make([]byte, benchSize)
			roundTrip(b, l, msg) // the other is there
			b.SetBytes(benchSize)
			start, n := time.Now(), 0
			for b.Loop() {
				if err := l.send(msg); err != nil {
					b.Fatal(err)
				}
				n++
			}
			roundTrip(b, l, msg) // all are taken
			b.ReportMetric(float64(n)/time.Since(start).Seconds()/1e6, "Mmsg/s")
		})
	}
}

func roundTrip(b *testing.B, l line, msg []byte) {
	msg[0] = 1
	if err := errors.Join(l.send(msg), l.recv(msg)); err != nil {
		b.Fatal(err)
	}
	msg[0] = 0
}

// BenchmarkRoundTrip sends a message and waits for it to come back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, kind := range benchKinds {
		b.Run(kind, func(b *testing.B) {
			l := connect(b, kind)
			msg := make([]byte, benchSize)
			roundTrip(b, l, msg)
			for b.Loop() {
				roundTrip(b, l, msg)
			}
		})
	}
}
