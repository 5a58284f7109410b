package replay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/replay"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

func TestMain(m *testing.M) { testenv.NoLeaks(m) }

// step is a record, and how long after the first one it was read.
type step struct {
	after time.Duration
	text  string
	waste bool
}

// logOf makes a log of the source s, and one record of another.
func logOf(t testing.TB, steps ...step) *archive.Archive {
	t.Helper()
	dir := t.TempDir()
	files, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: files, MinFree: -1, Sync: seglog.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := streams.Numbers([]archive.Stream{
		{Source: "s", Frame: "line"},
		{Source: "s", Frame: "line", Quarantine: true},
		{Source: "s/peer", Frame: "line"},
	})
	if err != nil {
		t.Fatal(err)
	}
	begin, offset := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), uint64(0)
	for _, s := range steps {
		number, data := numbers[0], []byte(s.text)
		if s.waste {
			number, data = numbers[1], archive.Quarantined(offset, data)
		}
		if _, err := log.Append(number, begin.Add(s.after).UnixNano(), data); err != nil {
			t.Fatal(err)
		}
		offset += uint64(len(s.text))
	}
	if _, err := log.Append(numbers[2], begin.UnixNano(), []byte("of a peer")); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var line = []step{
	{0, "one\n", false},
	{0, "two\n", false},
	{20 * time.Millisecond, "\xff\xfe", true},
	{20 * time.Millisecond, "three\n", false},
	{10 * time.Millisecond, "the clock was set back\n", false},
	{time.Hour, "four\n", false},
}

const whole = "one\ntwo\n\xff\xfethree\nthe clock was set back\nfour\n"

// tape keeps what is sent, and when.
type tape struct {
	sent     []string
	at       []time.Duration
	datagram int // what one has at most; 0: it is a stream
	finished bool
}

func (w *tape) Send(_ context.Context, b []byte) error {
	w.sent, w.at = append(w.sent, string(b)), append(w.at, rt.Now())
	return nil
}

func (w *tape) Finish(context.Context) error {
	w.finished = true
	return nil
}

func (w *tape) Gone() error { return nil }

func (w *tape) MaxSend() (int, bool) {
	if w.datagram > 0 {
		return w.datagram, true
	}
	return 1 << 10, false
}

// What was read at once is sent at once, and nothing before it is due. That counts from when the
// player begins, which is before the first write: one that is late shortens the pause behind it.
func TestPauses(t *testing.T) {
	log := logOf(t, line...)
	w := &tape{}
	began := rt.Now()
	r, err := replay.Run(context.Background(), log,
		replay.Config{Source: "s", Speed: 1, MaxPause: 100 * time.Millisecond}, w)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"one\ntwo\n", "\xff\xfethree\n", "the clock was set back\n", "four\n"}
	if strings.Join(w.sent, "|") != strings.Join(want, "|") {
		t.Fatalf("sent %q, want %q", w.sent, want)
	}
	for i, least := range []time.Duration{0, 20 * time.Millisecond, 20 * time.Millisecond, 120 * time.Millisecond} {
		if got := w.at[i] - began; got < least {
			t.Errorf("%q came after %v, and was due after %v", want[i], got, least)
		}
	}
	if r.Frames != 5 || r.Quarantined != 1 || r.Bytes != uint64(len(whole)) || r.NotThere != 0 || r.Late.Max <= 0 {
		t.Errorf("%+v", r)
	}
	if r.Took < 120*time.Millisecond {
		t.Errorf("120 ms took %v", r.Took)
	}
	if r, err = replay.Run(context.Background(), log, replay.Config{Source: "s", Speed: 100, MaxPause: 4 * time.Second},
		w); err != nil {
		t.Fatal(err)
	}
	if r.Took < 40*time.Millisecond {
		t.Errorf("4 s at speed 100 took %v", r.Took)
	}
}

// An end, a source without records, a receiver that fails.
func TestRunThatEnds(t *testing.T) {
	log := logOf(t, line...)
	ctx, cancel := context.WithCancel(context.Background())
	w := &tape{}
	time.AfterFunc(time.Millisecond, cancel) // in the pause of an hour, or before
	if _, err := replay.Run(ctx, log, replay.Config{Source: "s", Speed: 1}, w); !errors.Is(err, context.Canceled) {
		t.Errorf("an end: %v", err)
	}
	since := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).UnixNano()
	if _, err := replay.Run(context.Background(), log, replay.Config{Source: "s", Since: since}, w); !errors.Is(err,
		replay.ErrNothing) {
		t.Errorf("a time without records: %v", err)
	}
}

// What was read at once is not cut to fit into a datagram; and what is whole before the end is sent
// to its end, whatever comes then.
func TestDatagramsAreNotCut(t *testing.T) {
	w := &tape{datagram: 10}
	_, err := replay.Run(context.Background(), logOf(t, line...), quick, w)
	if err == nil || !strings.Contains(err.Error(), "record 5: more was read at once than a datagram has, 10 bytes") {
		t.Errorf("too large a datagram: %v", err)
	}
	if got := strings.Join(w.sent, "|"); got != "one\ntwo\n|\xff\xfethree\n" || !w.finished {
		t.Errorf("%q was sent, finished: %v", got, w.finished)
	}
}

// A segment in the middle that somebody has removed ends it, and what is before is played.
func TestRecordsThatAreMissing(t *testing.T) {
	dir := t.TempDir()
	files, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: files, MinFree: -1, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	number, err := streams.Number(archive.Stream{Source: "s", Frame: "raw"})
	for range 400 {
		if err == nil {
			_, err = log.Append(number, 1, make([]byte, 1000))
		}
	}
	if err = errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	if err := os.Remove(segments[1]); err != nil {
		t.Fatal(err)
	}
	in, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &tape{}
	r, err := replay.Run(context.Background(), in, quick, w)
	var gap *seglog.GapError
	if !errors.As(err, &gap) || gap.Cause != seglog.GapDamage || r.Frames != gap.From-1 || !w.finished {
		t.Errorf("%d frames were played, %v, finished: %v", r.Frames, err, w.finished)
	}
}

// received is what a reader has had.
type received struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *received) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(b)
}

func (r *received) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

var quick = replay.Config{Source: "s"}

func TestToPTY(t *testing.T) {
	many := []step{}
	want := ""
	for range 3000 { // more than a pty holds
		many = append(many, step{0, strings.Repeat("x", 99) + "\n", false})
		want += many[0].text
	}
	log, link := logOf(t, many...), filepath.Join(t.TempDir(), "port")
	var got received
	var reader sync.WaitGroup
	var port *os.File
	w, err := replay.ToPTY(context.Background(), link, replay.Bounds{}, func(path string) {
		if path != link {
			t.Errorf("it is at %s, want %s", path, link)
		}
		var err error
		if port, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
			t.Error(err)
			return
		}
		reader.Go(func() { _, _ = io.Copy(&got, port) })
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Run(context.Background(), log, quick, w); err != nil {
		t.Error(err)
	}
	// What the reader has taken it may not have kept yet.
	testenv.Until(t, time.Minute, "the reader has all", func() bool { return len(got.String()) == len(want) })
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
	if got.String() != want {
		t.Error("other bytes came")
	}
	if err := port.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link is left: %v", err)
	}
}

// Nobody opens a pty; nobody reads it; whoever has it open goes away.
func TestReceiversOfAPTYThatAreNone(t *testing.T) {
	short := replay.Bounds{Open: 20 * time.Millisecond, Stall: 50 * time.Millisecond}
	if _, err := replay.ToPTY(context.Background(), "", short, func(string) {}); err == nil ||
		!strings.Contains(err.Error(), "nobody has opened it within 20ms") {
		t.Errorf("nobody opens it: %v", err)
	}
	for _, leaves := range []bool{false, true} {
		var port *os.File
		w, err := replay.ToPTY(context.Background(), "", replay.Bounds{Stall: short.Stall}, func(path string) {
			var err error
			if port, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if leaves {
			if err := port.Close(); err != nil {
				t.Error(err)
			}
		}
		_, err = replay.Run(context.Background(), logOf(t, line...), quick, w)
		if leaves && !errors.Is(err, replay.ErrGone) ||
			!leaves && (err == nil || !strings.Contains(err.Error(), "taken nothing for 50ms")) {
			t.Errorf("leaves %v: %v", leaves, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if !leaves {
			_ = port.Close()
		}
	}
}

// Whoever has a pty open goes away in a pause, and before a byte is sent: nothing more is sent to
// nobody, though the kernel would take it.
func TestAReceiverOfAPTYThatLeaves(t *testing.T) {
	for _, speed := range []float64{0, 1} { // at 1 there is a pause of an hour
		var port *os.File
		w, err := replay.ToPTY(context.Background(), "", replay.Bounds{}, func(path string) {
			var err error
			if port, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		steps := []step{{0, "one\n", false}, {time.Hour, "two\n", false}}
		var left sync.WaitGroup
		if speed == 0 {
			_ = port.Close()
		} else {
			left.Go(func() {
				_, _ = io.ReadFull(port, make([]byte, 4))
				_ = port.Close()
			})
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		r, err := replay.Run(ctx, logOf(t, steps...), replay.Config{Source: "s", Speed: speed}, w)
		cancel()
		left.Wait()
		if want := uint64(speed) * 4; !errors.Is(err, replay.ErrGone) || r.Bytes != want {
			t.Errorf("speed %v: %d bytes were sent, %v; want %d, and that it has gone", speed, r.Bytes, err, want)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A port that is unplugged meanwhile.
func TestToPortThatVanishes(t *testing.T) {
	p, err := serialtest.NewPort(filepath.Join(t.TempDir(), "port"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := replay.ToPort(p.Link, serial.Config{}, replay.Bounds{Stall: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Unplug(); err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Run(context.Background(), logOf(t, line...), quick, w); !errors.Is(err, replay.ErrGone) {
		t.Errorf("%v, want that it is gone", err)
	}
	_ = w.Close()
	if _, err := replay.ToPort(p.Link, serial.Config{}, replay.Bounds{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a port that is not there: %v", err)
	}
}

// notYet fails where nobody is told to wait.
func notYet(t *testing.T) func(string) {
	return func(address string) { t.Errorf("it waits for %s", address) }
}

// Nobody is there yet: it waits as long as it is told to.
func TestToTCPWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	w, err := replay.ToAddress(context.Background(), "tcp", address, replay.Bounds{}, func(at string) {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Error(err)
			return
		}
		reader.Go(func() {
			defer l.Close()
			if c, err := l.Accept(); err == nil {
				_ = c.Close()
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
	_, err = replay.ToAddress(context.Background(), "tcp", address, replay.Bounds{Open: time.Millisecond}, notYet(t))
	if err == nil || !strings.Contains(err.Error(), "nobody has taken the connection within 1ms") {
		t.Errorf("nobody comes: %v", err)
	}
}

func TestToTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var got received
	var reader sync.WaitGroup
	reader.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = c.Write([]byte("said to nobody")) // must not make a reset of the end
		_, _ = io.Copy(&got, c)
		_ = c.Close()
	})
	w, err := replay.ToAddress(context.Background(), "tcp", l.Addr().String(), replay.Bounds{}, notYet(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Run(context.Background(), logOf(t, line...), quick, w); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
	if got.String() != whole {
		t.Errorf("%q came", got.String())
	}
}

// One who connects, one who goes away, and one who takes nothing.
func TestCallers(t *testing.T) {
	big := []step{}
	for range 200 {
		big = append(big, step{0, strings.Repeat("x", 100<<10) + "\n", false})
	}
	for _, what := range []string{"takes all", "goes away", "takes nothing"} {
		var caller net.Conn
		w, err := replay.ToCaller(context.Background(), "127.0.0.1:0", replay.Bounds{Stall: 300 * time.Millisecond},
			func(address string) {
				var err error
				if caller, err = net.Dial("tcp", address); err != nil {
					t.Error(err)
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		var got received
		var reader sync.WaitGroup
		switch what {
		case "takes all":
			reader.Go(func() { _, _ = io.Copy(&got, caller); _ = caller.Close() })
		case "goes away":
			_ = caller.(*net.TCPConn).SetLinger(0)
			_ = caller.Close()
		}
		r, err := replay.Run(context.Background(), logOf(t, big...), quick, w)
		_ = w.Close()
		reader.Wait()
		switch what {
		case "takes all":
			if err != nil || len(got.String()) != int(r.Bytes) {
				t.Errorf("%s: %v, %d bytes of %d", what, err, len(got.String()), r.Bytes)
			}
		case "goes away":
			if !errors.Is(err, replay.ErrGone) {
				t.Errorf("%s: %v", what, err)
			}
		default:
			if err == nil || !strings.Contains(err.Error(), "taken nothing") {
				t.Errorf("%s: %v", what, err)
			}
			_ = caller.Close()
		}
	}
	if _, err := replay.ToCaller(context.Background(), "127.0.0.1:0", replay.Bounds{Open: time.Millisecond},
		func(string) {}); err == nil {
		t.Error("nobody calls, and it is no error")
	}
}

// Each read is a datagram.
func TestToUDP(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w, err := replay.ToAddress(context.Background(), "udp", l.LocalAddr().String(), replay.Bounds{}, notYet(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := replay.Run(context.Background(), logOf(t, line...), quick, w); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	for _, want := range []string{"one\ntwo\n", "\xff\xfethree\n"} {
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := l.ReadFrom(b); err != nil || string(b[:n]) != want {
			t.Errorf("%q, %v, want %q", b[:n], err, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Run(context.Background(), logOf(t, line...), quick, w); err == nil ||
		!strings.Contains(err.Error(), "nobody receives there") {
		t.Errorf("nobody receives: %v", err)
	}
}
