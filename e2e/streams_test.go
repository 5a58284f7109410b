package e2e

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// stream is a connection of a device with a number of its own. The kernel says how much of it the
// other side's kernel has acknowledged: that is its truth.
type stream struct {
	device  uint32
	conn    *net.TCPConn
	base    uint64
	written uint64 // bytes
	acked   uint64 // … that were acknowledged, once it has ended
}

// streams is all connections of a test.
type streams struct {
	mu  sync.Mutex
	all []*stream
}

// dial makes a connection; nil: nobody listens.
func (all *streams) dial(addr string) *stream {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	s := &stream{device: uint32(1000 + len(all.all)), conn: c.(*net.TCPConn)}
	s.base = s.counted()
	all.all = append(all.all, s)
	return s
}

// reach is dial once somebody listens.
func (all *streams) reach(t *testing.T, addr string) (s *stream) {
	t.Helper()
	testenv.Until(t, time.Minute, "somebody listens at "+addr, func() bool {
		s = all.dial(addr)
		return s != nil
	})
	return s
}

// counted is tcpi_bytes_acked, which may have counted the SYN at the beginning, and counts the FIN.
func (s *stream) counted() (n uint64) {
	raw, err := s.conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if acked, err := sys.Acknowledged(int(fd)); err == nil {
				n = acked + 1
			}
		})
	}
	if err != nil {
		panic(err) // it is closed
	}
	return n
}

// say sends frames; false: the other side has ended the connection.
func (s *stream) say(frames int) bool {
	f := make([]byte, tally128.Size)
	for range frames {
		tally128.Encode(f, tally128.Header{Device: s.device, Epoch: 1, Seq: s.written / tally128.Size}, nil)
		_ = s.conn.SetWriteDeadline(time.Now().Add(20 * time.Second)) // longer than any of the recorder's waits
		n, err := s.conn.Write(f)
		if s.written += uint64(n); err != nil {
			return false
		}
	}
	return true
}

// end ends the connection, and learns what was acknowledged of it once nothing more can be.
func (s *stream) end(t *testing.T) {
	_ = s.conn.CloseWrite()
	_ = s.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err := s.conn.Read(make([]byte, 1))
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("the connection of device %d does not end", s.device)
	}
	s.acked = min(s.counted()-s.base, s.written)
	_ = s.conn.Close()
}

// end ends all connections.
func (all *streams) end(t *testing.T) {
	var ending sync.WaitGroup
	for _, s := range all.all {
		ending.Go(func() { s.end(t) })
	}
	ending.Wait()
}

// books is what all books of a log say, in all sheets.
type books struct {
	read, resync, unread, stored, missing uint64
	outages                               []string
}

func allBooks(t *testing.T, dir string) (b books) {
	t.Helper()
	starts, _, err := archive.LastStarts(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range starts {
		for _, p := range append(s.Sheet.Ports, s.Sheet.Leaving...) {
			b.read, b.resync = b.read+p.Bytes.Read, b.resync+p.Bytes.Resync+p.Bytes.Partial
			b.stored, b.missing = b.stored+p.Frames.Stored, b.missing+p.Frames.Missing
			for _, n := range p.Unread {
				b.unread += n
			}
			for _, o := range p.Outages {
				b.outages = append(b.outages, p.ID+": "+o.Cause)
			}
		}
	}
	return b
}

// storedOf counts the frames of each device that a log has. Each is there once.
func storedOf(t *testing.T, dir string) (n map[uint32]uint64) {
	t.Helper()
	type name struct {
		device uint32
		number uint64
	}
	seen, n := map[name]bool{}, map[uint32]uint64{}
	eachRecord(t, dir, func(d archive.Record) {
		if d.Device == nil {
			return
		}
		k := name{*d.Device, *d.Number}
		if seen[k] {
			t.Errorf("frame %d of device %d is stored twice", k.number, k.device)
		}
		seen[k] = true
		n[k.device]++
	})
	return n
}

// hold holds a log to the streams: what the kernel has acknowledged is stored, but for what the
// books name as unread. lines are devices at ports, whose frames are stored, or missing by the
// books.
func (all *streams) hold(t *testing.T, dir string, lines lines) {
	t.Helper()
	stored, b := storedOf(t, dir), allBooks(t, dir)
	var acked, written, whole, lost, made, onLines uint64
	for _, s := range all.all {
		acked, written = acked+s.acked, written+s.written
		n := stored[s.device]
		whole += n
		if n < s.acked/tally128.Size {
			lost += s.acked - n*tally128.Size
			t.Logf("device %d: %d bytes written, %d acknowledged, %d frames stored", s.device, s.written, s.acked, n)
		}
	}
	for i, d := range lines.devices {
		made, onLines = made+d.Truth.Made, onLines+stored[uint32(i+1)]
	}
	if lost > b.unread {
		t.Errorf("%d bytes that the kernel had acknowledged are not stored, and the books name %d", lost, b.unread)
	}
	if b.stored != whole+onLines {
		t.Errorf("%d frames are stored, by the books %d", whole+onLines, b.stored)
	}
	if made != onLines+b.missing {
		t.Errorf("%d frames were made at ports, %d of them are stored, and the books miss %d; outages %q", made,
			onLines, b.missing, b.outages)
	}
	if got := b.read - onLines*tally128.Size + b.unread; len(lines.devices) == 0 && (got < acked || got > written) {
		t.Errorf("%d bytes were acknowledged, %d were written, and the books have %d", acked, written, got)
	}
	t.Logf("%d connections, %d bytes acknowledged, %d frames of them stored, %d of %d at ports; the books: %+v",
		len(all.all), acked, whole, onLines, made, b)
}
