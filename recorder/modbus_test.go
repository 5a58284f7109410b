package recorder

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// A request and its answer that come as one chunk, with CRCs that end in 0, and an answer that a
// pause cuts in two: all are recorded as they were sent, by every strategy.
func TestModbusThroughAnAdapter(t *testing.T) {
	sealed := func(b ...byte) []byte {
		crc := crc16.Modbus(b)
		return append(b, byte(crc), byte(crc>>8))
	}
	request := sealed(1, 3, 0, 0, 0, 2)
	for n := 0; request[len(request)-1] != 0; n++ {
		request = sealed(1, 3, byte(n>>8), byte(n), 0, 2)
	}
	answer := sealed(1, 3, 4, 0, 9, 0, 8)
	for n := 0; answer[len(answer)-1] != 0; n++ {
		answer = sealed(1, 3, 4, 0, 9, byte(n>>8), byte(n))
	}
	for _, strategy := range strategies {
		dir := t.TempDir()
		port, err := serialtest.NewPort(filepath.Join(dir, "line"))
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy },
			config.Source{
				ID: "m", Serial: &config.Serial{Port: port.Link, Baud: 19200},
				Frame: config.Frame{Kind: "modbus"},
			})
		testenv.Until(t, 10*time.Second, "the port is open",
			func() bool { return portOf(g, "m").State == ledger.StateOpen })
		for i := range uint64(10) {
			write(t, port, append(request[:len(request):len(request)], answer...))
			stored(t, g, "m", 4*i+2)
			write(t, port, append(request[:len(request):len(request)], answer[:6]...))
			stored(t, g, "m", 4*i+3) // long after the silence that ends a frame
			write(t, port, answer[6:])
			stored(t, g, "m", 4*i+4)
		}
		p := stop(t, g).Ports[0]
		if p.Frames.OK != 40 || p.Frames.Corrupt != 0 || p.Bytes.Resync != 0 {
			t.Errorf("%s: %+v, %+v; want 40 frames and nothing else", strategy, p.Bytes, p.Frames)
		}
		n := 0
		eachRecord(t, dir, archive.Query{}, func(r archive.Record) {
			want := request
			if n%2 == 1 {
				want = answer
			}
			if n++; string(r.Data) != string(want) {
				t.Errorf("%s: record %d is % X, want % X", strategy, r.Seq, r.Data, want)
			}
		})
		port.Close()
	}
}

// A frame that is cut off, and followed by nothing, is given up when its time is over, and the next
// one is found.
func TestCutModbusFrameIsGivenUp(t *testing.T) {
	for _, strategy := range strategies {
		dir := t.TempDir()
		port, err := serialtest.NewPort(filepath.Join(dir, "line"))
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy },
			config.Source{
				ID: "m", Serial: &config.Serial{Port: port.Link, Baud: 19200},
				Frame: config.Frame{Kind: "modbus"},
			})
		testenv.Until(t, 10*time.Second, "the port is open",
			func() bool { return portOf(g, "m").State == ledger.StateOpen })
		write(t, port, []byte{1, 3, 4, 0, 9})
		testenv.Until(t, time.Minute, strategy+": the frame is given up", func() bool {
			p := portOf(g, "m")
			return p.Frames.Corrupt == 1 && p.Bytes.Resync == 5 && p.Bytes.Partial == 0
		})
		crc := crc16.Modbus([]byte{2, 6, 0, 1, 0, 5})
		write(t, port, []byte{2, 6, 0, 1, 0, 5, byte(crc), byte(crc >> 8)})
		stored(t, g, "m", 1)
		stop(t, g)
		port.Close()
	}
}

// A device that does not answer is missed: when the next request comes, or when its time is over.
// What is asked when a reload hands the line on is not lost sight of.
func TestUnansweredRequests(t *testing.T) {
	sealed := func(b ...byte) []byte {
		crc := crc16.Modbus(b)
		return append(b, byte(crc), byte(crc>>8))
	}
	request, answer := sealed(1, 3, 0, 0, 0, 2), sealed(1, 3, 4, 0, 9, 0, 8)
	for _, strategy := range strategies {
		dir := t.TempDir()
		port, err := serialtest.NewPort(filepath.Join(dir, "line"))
		if err != nil {
			t.Fatal(err)
		}
		source := config.Source{
			ID: "m", Serial: &config.Serial{Port: port.Link, Baud: 19200},
			Frame: config.Frame{Kind: "modbus"},
		}
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy }, source)
		testenv.Until(t, 10*time.Second, "the port is open",
			func() bool { return portOf(g, "m").State == ledger.StateOpen })
		sent := uint64(0)
		send := func(frames ...[]byte) ledger.Frames {
			for _, f := range frames {
				write(t, port, f)
				sent++
				stored(t, g, "m", sent)
			}
			return portOf(g, "m").Frames
		}
		want := func(when string, f ledger.Frames, asked, answered, unanswered uint64) {
			t.Helper()
			if f.Requests != asked || f.Answered != answered || f.Unanswered != unanswered {
				t.Errorf("%s, %s: %d asked, %d answered, %d unanswered; want %d, %d, %d",
					strategy, when, f.Requests, f.Answered, f.Unanswered, asked, answered, unanswered)
			}
		}
		want("all answered", send(request, answer, request, answer), 2, 2, 0)
		want("asked again", send(request, request, answer), 4, 3, 1)
		if v := g.Sheet().Verdict; v.Level != ledger.Bad || v.LostWire.Frames != 1 || v.LastLoss == 0 {
			t.Errorf("%s: %+v", strategy, v)
		}
		send(request)
		later(g, 4*time.Second)
		want("in time", portOf(g, "m").Frames, 5, 3, 1)
		later(g, time.Second)
		want("over time", portOf(g, "m").Frames, 5, 3, 2)
		want("answered late", send(answer), 5, 4, 1)

		send(request)
		cfg := g.Config()
		cfg.Sources[0].SilentAfter = time.Hour // another lane goes on with the line
		if err := g.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		sent = 0
		testenv.Until(t, 10*time.Second, "the port is open",
			func() bool { return portOf(g, "m").State == ledger.StateOpen })
		want("asked before the reload", send(request), 1, 0, 1)
		want("and answered", send(answer), 1, 1, 1)
		send(request)
		c := g.Config()
		c.Sources[0].SilentAfter = 2 * time.Hour
		if err := g.Reload(c); err != nil {
			t.Fatal(err)
		}
		sent = 0
		testenv.Until(t, 10*time.Second, "the port is open",
			func() bool { return portOf(g, "m").State == ledger.StateOpen })
		later(g, 5*time.Second)
		want("asked before the reload, and no more", portOf(g, "m").Frames, 0, 0, 1)
		stop(t, g)
		port.Close()
	}
}

// A watcher hears of a request that nothing has followed in time, once, and of an answer that comes
// after all.
func TestWatcherHearsOfNoAnswer(t *testing.T) {
	l, err := newLane(config.Source{
		ID: "m", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "modbus"}, Overflow: config.OverflowBlock,
		Buffer: 64 << 10,
	}, &stubLog{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	l.in.watcher = watchFunc(func(e Event) {
		switch {
		case e.Kind == NoAnswer:
			heard = append(heard, "no answer")
		case e.Kind == SawFrame && e.Frame.Answers:
			heard = append(heard, fmt.Sprintf("answer, late: %v", e.Fate.AnsweredLate))
		}
	})
	l.device, l.state = &losing{}, ledger.StateOpen
	request, answer := []byte{1, 3, 0, 0, 0, 2, 0xC4, 0x0B}, []byte{1, 3, 4, 0, 9, 0, 8}
	sum := crc16.Modbus(answer)
	answer = append(answer, byte(sum), byte(sum>>8))
	l.Arrived(request, len(request), 1)
	balanced(t, l)
	l.mu.Lock()
	ages(l, 6*time.Second)
	l.mu.Unlock()
	balanced(t, l)
	balanced(t, l)
	l.Arrived(answer, len(answer), 2)
	if got := strings.Join(heard, "; "); got != "no answer; answer, late: true" {
		t.Errorf("the watcher heard: %s", got)
	}
}

// losing is a device whose driver counts what it has lost.
type losing struct {
	device
	lost uint64
}

func (d *losing) kernel() *ledger.Kernel {
	n := d.lost
	return &ledger.Kernel{BufferOverrun: &n}
}

// What the kernel lost may have been the answer: a request before that is not called unanswered.
func TestUnansweredWhereTheKernelLost(t *testing.T) {
	l, err := newLane(config.Source{
		ID: "m", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "modbus"}, Overflow: config.OverflowBlock,
		Buffer: 64 << 10,
	}, &stubLog{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	request := []byte{1, 3, 0, 0, 0, 2, 0xC4, 0x0B}
	d := &losing{}
	l.device, l.state = d, ledger.StateOpen
	ask := func() uint64 {
		l.Arrived(request, len(request), 1)
		return balanced(t, l).Unanswered
	}
	ask()
	if n := ask(); n != 1 {
		t.Errorf("%d unanswered, want 1", n)
	}
	d.lost = 9
	if n := ask(); n != 1 {
		t.Errorf("%d unanswered behind bytes that the kernel lost, want 1", n)
	}
	if n := ask(); n != 1 {
		t.Errorf("%d unanswered just behind that, want 1", n)
	}
	l.overrun = l.overrun.Add(-doubt)
	if n := ask(); n != 2 {
		t.Errorf("%d unanswered later, want 2", n)
	}
}

// lateDevice is one of which bytes wait to be read.
type lateDevice struct {
	device
	waits atomic.Bool
}

func (d *lateDevice) waiting() bool          { return d.waits.Load() }
func (d *lateDevice) kernel() *ledger.Kernel { return nil }

// A recorder that stood still has heard nothing of a line for long, and yet that was not silent:
// what came meanwhile waits to be read. A pipeline cuts no frame in two for that.
func TestPipelineThatStoodStillCutsNoFrame(t *testing.T) {
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config.Source{ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "modbus"}}
			l, err := newLane(cfg, &stubLog{}, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			d := &lateDevice{}
			d.waits.Store(waits)
			l.device = d
			p := newPipeline(l)
			b := []byte{1, 3, 4, 0, 9, 0, 8}
			b = binary.LittleEndian.AppendUint16(b, crc16.Modbus(b))
			p.Arrived(b[:5], 5, time.Now().UnixNano())
			time.Sleep(10 * time.Second)
			d.waits.Store(false)
			p.Arrived(b[5:], len(b)-5, time.Now().UnixNano())
			time.Sleep(10 * time.Second)
			p.Closed(nil, time.Now().UnixNano(), reader.ErrRemoved)
			if f := l.sheet().Frames; waits != (f.OK == 1) || waits != (f.Corrupt == 0) {
				t.Errorf("the rest waits to be read: %v: %+v", waits, f)
			}
		})
	}
}
