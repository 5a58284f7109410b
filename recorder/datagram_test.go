package recorder

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame/cobs"
	"github.com/tallywheel/tallywheel/frame/slip"
	"github.com/tallywheel/tallywheel/frame/ubx"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// keepingLog has what it was given.
type keepingLog struct{ all [][]byte }

func (k *keepingLog) TryAppendAt(_ uint32, _ int64, _ uint64, data []byte) (uint64, error) {
	k.all = append(k.all, bytes.Clone(data))
	return uint64(len(k.all)), nil
}

// datagramFramings is every framing, checked and not, wide and narrow, with its n-th good datagram.
func datagramFramings() map[string]struct {
	frame config.Frame
	good  func(n int) []byte
} {
	text := func(n int) []byte { return fmt.Appendf(nil, "good %d", n) }
	sealed := func(b []byte) []byte { return binary.LittleEndian.AppendUint16(b, crc16.Modbus(b)) }
	sentence := func(n int) []byte {
		body, sum := fmt.Sprintf("GPGLL,%d,N", n), byte(0)
		for _, c := range []byte(body) {
			sum ^= c
		}
		return fmt.Appendf(nil, "$%s*%02X\r\n", body, sum)
	}
	counted := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	all := map[string]struct {
		frame config.Frame
		good  func(n int) []byte
	}{}
	add := func(f config.Frame, good func(n int) []byte) {
		all[fmt.Sprintf("%s max %d check %s", f.Kind, f.Max, f.Check)] = struct {
			frame config.Frame
			good  func(n int) []byte
		}{f, good}
	}
	for _, most := range []int{0, 64} {
		add(config.Frame{Kind: "line", Max: most}, func(n int) []byte { return append(text(n), '\n') })
		add(config.Frame{Kind: "line", Max: most, Check: "nmea"}, sentence)
		add(config.Frame{Kind: "ubx", Max: most}, func(n int) []byte { return ubx.Append(nil, 1, byte(n), text(n)) })
		add(config.Frame{Kind: "raw", Max: most}, text)
		add(config.Frame{Kind: "cobs", Max: most}, func(n int) []byte { return cobs.Encode(nil, text(n)) })
		add(config.Frame{Kind: "slip", Max: most}, func(n int) []byte { return slip.Encode(nil, text(n)) })
		add(config.Frame{Kind: "length", Max: most}, func(n int) []byte { return counted(text(n)) })
		add(config.Frame{Kind: "cobs", Max: most, Check: "modbus"},
			func(n int) []byte { return cobs.Encode(nil, sealed(text(n))) })
		add(config.Frame{Kind: "slip", Max: most, Check: "modbus"},
			func(n int) []byte { return slip.Encode(nil, sealed(text(n))) })
		add(config.Frame{Kind: "length", Max: most, Check: "modbus"},
			func(n int) []byte { return counted(sealed(text(n))) })
	}
	add(config.Frame{Kind: "tally128"}, func(n int) []byte { return frames(uint64(n), 1) })
	add(config.Frame{Kind: "modbus"}, func(n int) []byte { return sealed([]byte{1, 6, 0, 1, 0, byte(n)}) })
	return all
}

// before is a datagram of any contents: noise, one character, a good one that is cut, or several.
func before(rng *rand.Rand, good []byte) []byte {
	sizes := []int{0, 1, 2, 7, 63, 64, 65, 300, 1023, 1024, 1025, 4096, 16 << 10, 17_000, 65_507}
	n := sizes[rng.IntN(len(sizes))]
	b := make([]byte, n)
	switch rng.IntN(4) {
	case 0: // of characters that frames begin with, end with, or neither
		c := []byte{'z', 0, '\n', 0xC0, 0xDB, '$', 0xB5, 0xFF}[rng.IntN(8)]
		for i := range b {
			b[i] = c
		}
	case 1:
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	case 2:
		for i := range b {
			b[i] = 'z'
		}
		b = append(b, good[:rng.IntN(len(good))]...)
	default:
		b = append(bytes.Repeat(good, 1+rng.IntN(3)), good[:rng.IntN(len(good))]...)
	}
	return b
}

// Whatever a datagram holds, the next one is framed as if it came first: its border ends
// everything.
func TestADatagramEndsWhateverItHolds(t *testing.T) {
	for name, f := range datagramFramings() {
		rng := rand.New(rand.NewPCG(1, 2))
		log := &keepingLog{}
		cfg := config.Source{
			ID: "a", UDP: &config.Net{Listen: ":0"}, Frame: f.frame, Overflow: config.OverflowBlock,
			Buffer: 1 << 20,
		}
		l, err := newLane(cfg, log, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 150 {
			good := f.good(n)
			first := before(rng, good)
			arrive(t, l, first)
			had, ok := len(log.all), l.sheet().Frames
			arrive(t, l, good)
			now := l.sheet().Frames
			if now.OK != ok.OK+1 || now.Corrupt != ok.Corrupt || len(log.all) != had+1 ||
				!bytes.Equal(log.all[had], good) {
				t.Fatalf("%s: behind a datagram of %d bytes (% X…): %d more frames, %d more corrupt, stored % X; want % X",
					name, len(first), first[:min(len(first), 16)], now.OK-ok.OK, now.Corrupt-ok.Corrupt, log.all[had:],
					good)
			}
		}
		if p := l.sheet(); len(p.Unbalanced) > 0 || p.Bytes.Partial > 0 {
			t.Errorf("%s: %+v, unbalanced: %v", name, p.Bytes, p.Unbalanced)
		}
	}
}

// arrive brings one datagram, and checks that nothing of it is held.
func arrive(t *testing.T, l *lane, b []byte) {
	t.Helper()
	if done, more := l.Arrived(b, len(b), 1); done != len(b) || !more {
		t.Fatalf("%d bytes of %d are done with, more %v", done, len(b), more)
	}
}

// What the kernel has dropped at a socket stays counted when it is opened again, the last ones
// before it was closed as well; what it drops then adds up. Another lane counts from 0.
func TestDropsOfAllSockets(t *testing.T) {
	o := &udpOpener{addr: freeUDP(t)}
	flood := func(d device) {
		t.Helper()
		c, err := net.Dial("udp", o.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		before, err := sys.SocketDrops(d.fd())
		if err != nil {
			t.Skipf("SKIPPED: the kernel does not say what it drops (%v); run this on Linux 4.12 or later", err)
		}
		testenv.Until(t, time.Minute, "the buffer is full", func() bool {
			for range 1000 {
				_, _ = c.Write(make([]byte, 8000))
			}
			n, err := sys.SocketDrops(d.fd())
			return err == nil && n > before
		})
	}
	l, _ := testLane(t, config.OverflowBlock)
	var told uint64
	for i := range 3 {
		d, err := o.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.opened(d, 1)
		if n := *l.sheet().Kernel.BufferOverrun; n != told {
			t.Errorf("socket %d begins with %d dropped, want %d", i, n, told)
		}
		flood(d)
		d.deafen() // what is still on its way counts nowhere
		n, err := sys.SocketDrops(d.fd())
		if err != nil {
			t.Fatal(err)
		}
		told += uint64(n)
		l.detach() // nobody has asked since the flood
		if n := *l.sheet().Kernel.BufferOverrun; n != told {
			t.Errorf("%d dropped at %d sockets, want %d", n, i+1, told)
		}
		if i == 2 {
			another, _ := testLane(t, config.OverflowBlock)
			d.recount()
			another.opened(d, 2)
			if n := *another.sheet().Kernel.BufferOverrun; n != 0 {
				t.Errorf("another lane begins with %d dropped", n)
			}
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// To ask whether datagrams wait takes none of them. What is given up is counted to the byte, and is
// gone.
func TestDatagramsWaitUntilTheyAreGivenUp(t *testing.T) {
	d, err := (&udpOpener{"127.0.0.1:0"}).open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if d.waiting() || d.discard() != 0 {
		t.Error("something waits, and nobody has sent")
	}
	c, err := net.Dial("udp", d.name())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []int{7, 30_000, 500} {
		if _, err := c.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, time.Minute, "the datagrams have come", d.waiting)
	b := make([]byte, sockets.MaxDatagram)
	if n, err := sys.Receive(d.fd(), b); n != 7 || err != nil || !d.waiting() {
		t.Errorf("the first datagram has %d bytes, %v; want 7, and more behind it", n, err)
	}
	if n := d.discard(); n != 30_500 || d.waiting() {
		t.Errorf("%d bytes are given up, something waits: %v; want 30500, and nothing", n, d.waiting())
	}
}
