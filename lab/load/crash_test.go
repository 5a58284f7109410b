package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestTCPLineConnectsAgain: a device goes on with its next record over another connection; what it
// says while nobody listens is taken by nobody; and its end waits until all is read.
func TestTCPLineConnectsAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	line := &tcpLine{addr: addr}
	next := uint64(0)
	say := func() bool {
		t.Helper()
		b := make([]byte, RecordBytes)
		binary.LittleEndian.PutUint64(b, next)
		taken, err := line.say(b)
		if err != nil {
			t.Fatal(err)
		}
		next++
		return taken
	}
	read := func(c net.Conn) (all []uint64) {
		for r, b := bufio.NewReader(c), make([]byte, RecordBytes); ; {
			if _, err := io.ReadFull(r, b); err != nil {
				return all
			}
			all = append(all, binary.LittleEndian.Uint64(b))
		}
	}
	testenv.Until(t, time.Minute, "somebody takes it", say)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	<-line.ended // it hears of that, as a device does
	if say() {
		t.Error("nobody listens, and somebody takes it")
	}
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Skipf("SKIPPED: the address is somebody else's by now: %v; run it again", err)
	}
	defer l.Close()
	testenv.Until(t, time.Minute, "somebody takes it again", say)
	from := next - 1
	all := make(chan []uint64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			all <- nil
			return
		}
		numbers := read(c)
		_ = c.Close()
		all <- numbers
	}()
	last := make([]byte, RecordBytes)
	binary.LittleEndian.PutUint64(last, next)
	if err := line.end(last); err != nil {
		t.Fatal(err)
	}
	if got := <-all; len(got) != 2 || got[0] != from || got[1] != next {
		t.Errorf("%v came over the second connection, want %d and %d", got, from, next)
	}
	if err := line.close(); err != nil {
		t.Error(err)
	}
}
