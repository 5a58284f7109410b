package server_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// What a ConnHandler does is said by the first bytes of a connection: a letter, and its number.
const (
	connEcho     = 'e' // sends back what comes, and the hash of it
	connSink     = 's' // reads to the end, and sends the hash
	connSource   = 'b' // sends much while it reads
	connHalf     = 'h' // ends its side at once, and reads to the end
	connDeadline = 'd' // as echo, by read deadlines that pass again and again
	connPanic    = 'p'
	connExit     = 'g'
)

// connAbuses are what a client and a ConnHandler do.
var connAbuses = []string{"echo", "sink", "source", "half", "patience", "reset", "connpanic", "goexit"}

// halves are the hashes of what handlers have read after they had ended their side, by number.
var halves sync.Map

// connScript is one connection to a ConnHandler.
type connScript struct {
	abuse string
	op    byte
	id    uint64
	size  int
	slow  bool
	split bool
}

func (s *connScript) String() string {
	return fmt.Sprintf("%s of %d bytes (slow=%v, split=%v)", s.abuse, s.size, s.slow, s.split)
}

func newConnScript(rng *rand.Rand, abuse string) *connScript {
	s := &connScript{abuse: abuse, id: rng.Uint64(), slow: rng.IntN(8) == 0, split: rng.IntN(2) == 0}
	s.size = rng.IntN(1 + rng.IntN(40_000))
	if rng.IntN(10) == 0 || s.slow {
		s.size = rng.IntN(3_000_000)
	}
	s.op = map[string]byte{
		"echo": connEcho, "sink": connSink, "source": connSource, "half": connHalf, "patience": connDeadline,
		"reset":     connEcho,
		"connpanic": connPanic, "goexit": connExit,
	}[abuse]
	return s
}

// sourced is how much a source sends.
func sourced(id uint64) int { return int(id % 2_000_000) }

// connAsk is the handler.
func connAsk(_ context.Context, c net.Conn) {
	var first [9]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return
	}
	id := binary.LittleEndian.Uint64(first[1:])
	var hash maphash.Hash
	hash.SetSeed(hashSeed)
	b := make([]byte, 500+id%3000)
	read := func(each func(b []byte) error) error {
		for {
			n, err := c.Read(b)
			_, _ = hash.Write(b[:n])
			if e := each(b[:n]); e != nil {
				return e
			}
			if err == io.EOF {
				return nil
			} else if err != nil && !(first[0] == connDeadline && errors.Is(err, os.ErrDeadlineExceeded)) {
				return err
			}
			if first[0] == connDeadline {
				_ = c.SetReadDeadline(time.Now().Add(time.Duration(1+id%3) * time.Millisecond))
			}
		}
	}
	back := func(b []byte) error { _, err := c.Write(b); return err }
	nothing := func([]byte) error { return nil }
	switch first[0] {
	case connEcho, connDeadline:
		if read(back) != nil {
			return
		}
	case connSink:
		if read(nothing) != nil {
			return
		}
	case connSource:
		if back(piece(nil, ^id, sourced(id))) != nil || read(nothing) != nil {
			return
		}
	case connHalf:
		if cw, ok := c.(interface{ CloseWrite() error }); ok {
			_ = cw.CloseWrite()
		}
		err := read(nothing)
		halves.Store(id, fmt.Sprint(hashText(hash.Sum64()), err))
		return
	case connPanic:
		panic("as ordered")
	case connExit:
		runtime.Goexit()
	}
	_, _ = io.WriteString(c, hashText(hash.Sum64()))
}

// playConn is one connection to it. Each 4 KiB count as an answer.
func (k *asker) playConn(s *connScript) (err error) {
	k.s = &script{slow: s.slow}
	k.lo, k.hi, k.reads = 0, 0, 0
	c, err := net.Dial("tcp", k.addr)
	if err != nil {
		return err
	}
	k.tcp, k.c = c.(*net.TCPConn), c
	_ = c.SetDeadline(time.Now().Add(2 * soon))
	if s.slow {
		_ = k.tcp.SetReadBuffer(256 << 10)
	}
	if k.tls != nil {
		k.c = tls.Client(c, k.tls)
	}
	content := piece(nil, s.id, s.size)
	out := append(binary.LittleEndian.AppendUint64([]byte{s.op}, s.id), content...)
	sent := make(chan error, 1)
	go func(c net.Conn, rng *rand.Rand) { sent <- write(c, out, true, s.split, rng) }(k.c,
		rand.New(rand.NewPCG(s.id, 2)))
	defer func() {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errHangs, err)
		}
		k.c.Close()
		<-sent
		k.done(1 + s.size>>12)
	}()
	hash := hashText(maphash.Bytes(hashSeed, content))
	switch s.op {
	case connEcho, connDeadline:
		if s.abuse == "reset" {
			_, err := k.compare(content[:k.rng.IntN(len(content)+1)], false)
			_ = k.tcp.SetLinger(0)
			return err
		}
		return k.all(append(content, hash...))
	case connSink:
		return k.all([]byte(hash))
	case connSource:
		return k.all(append(piece(nil, ^s.id, sourced(s.id)), hash...))
	case connHalf:
		if err := k.all(nil); err != nil {
			return err
		}
		return k.half(s.id, hash+"<nil>")
	}
	return k.all(nil) // the handler dies
}

// all compares all that comes.
func (k *asker) all(want []byte) error {
	n, err := k.compare(want, true)
	if err != nil {
		return fmt.Errorf("at %d of %d: %w", n, len(want), err)
	}
	return nil
}

// half waits for what the handler read after it had ended its side.
func (k *asker) half(id uint64, want string) error {
	for end := time.Now().Add(2 * soon); time.Now().Before(end); time.Sleep(time.Millisecond / 4) {
		if got, ok := halves.LoadAndDelete(id); ok {
			if got != want {
				return fmt.Errorf("%w: a handler that had ended its side read %v, want %v", errMissing, got, want)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: a handler that had ended its side does not come to the end", errHangs)
}
