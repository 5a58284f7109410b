package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// illDisk is a log's directory whose files fail to sync while ill is set, or wait with it until
// wait is closed.
type illDisk struct {
	seglog.FS
	ill  *atomic.Bool
	wait chan struct{}
}

var errIll = errors.New("input/output error, by order of the test")

func (d illDisk) Create(name string) (seglog.File, error) { return d.file(d.FS.Create(name)) }
func (d illDisk) Open(name string) (seglog.File, error)   { return d.file(d.FS.Open(name)) }

func (d illDisk) file(f seglog.File, err error) (seglog.File, error) {
	if err != nil {
		return nil, err
	}
	return illFile{f, d.ill, d.wait}, nil
}

type illFile struct {
	seglog.File
	ill  *atomic.Bool
	wait chan struct{}
}

func (f illFile) Sync() error {
	if f.ill.Load() {
		if f.wait == nil {
			return errIll
		}
		<-f.wait
	}
	return f.File.Sync()
}

// onIllDisk makes logs that are opened from now on fail to sync once the flag is set.
func onIllDisk(t *testing.T) *atomic.Bool {
	t.Helper()
	ill := &atomic.Bool{}
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return illDisk{fs, ill, nil}, err
	}
	t.Cleanup(func() { openFiles = logFiles })
	return ill
}

// A log that fails is told of, so that the program ends and a supervisor starts it again.
func TestFailureOfTheLogIsTold(t *testing.T) {
	ill := onIllDisk(t)
	g := start(t, t.TempDir(), nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 10))
	stored(t, g, "a", 10)
	ill.Store(true)
	write(t, c, frames(10, 10))
	select {
	case err := <-g.Failed():
		if !errors.Is(err, seglog.ErrFailed) || !errors.Is(err, errIll) {
			t.Errorf("told of %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing is told")
	}
	if _, err := g.Stop("test"); !errors.Is(err, errIll) {
		t.Errorf("the stop brings %v", err)
	}
}

// What the kernel holds when a source stops, and the log does not take, is counted.
func TestUnreadIsCounted(t *testing.T) {
	patience := finishPatience
	finishPatience = 100 * time.Millisecond
	ill, wait := &atomic.Bool{}, make(chan struct{})
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return illDisk{fs, ill, wait}, err
	}
	defer func() { finishPatience, openFiles = patience, logFiles }()
	g := start(t, t.TempDir(), nil, lines("a", ""))
	ill.Store(true)
	c := dial(t, address(g, "a"))
	defer c.Close()
	sent := make(chan uint64)
	go func() {
		b, n := bytes.Repeat([]byte("a line of thirty-two characters\n"), 1000), uint64(0)
		for {
			m, err := c.Write(b)
			if n += uint64(m); err != nil {
				sent <- n
				return
			}
		}
	}()
	testenv.Until(t, 20*time.Second, "the source is blocked, and the kernel holds more", func() bool {
		p := portOf(g, "a")
		return p.State == ledger.StateBlocked && acknowledged(t, c) > p.Bytes.Read
	})
	go func() {
		defer close(wait) // in any case, or the stop never ends
		for late := time.Now().Add(time.Minute); portOf(g, "a").Unread[unreadStopped] == 0 && time.Now().Before(late); {
			runtime.Gosched()
		}
	}()
	sheet, err := g.Stop("stopped on request")
	p := sheet.Ports[0]
	most, acked := <-sent, acknowledged(t, c)
	if err == nil || !strings.Contains(err.Error(), "bytes that had arrived are left unread") {
		t.Errorf("Stop: %v, want that the log did not take all", err)
	}
	if got := p.Bytes.Read + p.Unread[unreadStopped]; p.Unread[unreadStopped] == 0 || got < acked || got > most {
		t.Errorf("%d bytes sent, %d acknowledged, the books name %d: %+v, unread %v", most, acked, got, p.Bytes,
			p.Unread)
	}
}

// takeDescriptors takes all that are to be had until the test ends, but n.
func takeDescriptors(t *testing.T, n int) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	now := before
	now.Cur = uint64(descriptors(t) + 20)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	var taken []int
	for {
		fd, err := sys.Eventfd()
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	for i, fd := range taken {
		if i < n {
			_ = sys.CloseFD(fd)
		}
	}
	t.Cleanup(func() {
		for _, fd := range taken[n:] {
			_ = sys.CloseFD(fd)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
}

// With every descriptor taken by others, the log begins its next segments from its reserve, and
// connections wait where they are.
func TestRecordingGoesOnWithoutDescriptors(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"), tcp("b"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 10))
	stored(t, g, "a", 10)
	waits, err := (&net.Dialer{}).Dial("tcp", address(g, "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	write(t, waits, frames(0, 5))
	stored(t, g, "b", 5)
	takeDescriptors(t, 0)
	const n = 30_000 // 4 segments
	for i := uint64(10); i < n; i += 100 {
		write(t, c, frames(i, min(100, n-i)))
	}
	stored(t, g, "a", n)
	if p := g.log.Position(); p.Err != nil {
		t.Error(p.Err)
	}
	stop(t, g)
}

// cpu is what the process has used so far.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Accepting rests while there are no descriptors, and goes on when there are.
func TestAcceptRestsWithoutDescriptors(t *testing.T) {
	l := newListener("127.0.0.1:0", "")
	defer l.close(true)
	c := dial(t, l.l.Addr().String())
	defer c.Close()
	d, err := l.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	t.Run("none", func(t *testing.T) {
		takeDescriptors(t, 1)
		c2 := dial(t, l.l.Addr().String()) // takes the last
		t.Cleanup(func() { c2.Close() })
		// Others of the process may be at work in one half of a second, but not in all. A loop gets
		// more than that also on a machine that is busy with ten others.
		testenv.Until(t, time.Minute, "accepting takes less than 10 ms of CPU in 500 ms", func() bool {
			before := cpu(t)
			time.Sleep(500 * time.Millisecond) // nothing is waited for: this long it is watched
			return cpu(t)-before < 10*time.Millisecond
		})
	})
	c3 := dial(t, l.l.Addr().String())
	defer c3.Close()
	select {
	case <-l.replaced():
	case <-time.After(time.Minute):
		t.Error("no connection is accepted once there are descriptors")
	}
}

// A source that a reload moves while the log cannot settle its frames is in the running sheet with
// all its amounts, and in the one on disk, until its own sheet is kept.
func TestMovedSourceIsInTheRunningSheet(t *testing.T) {
	ill, wait := &atomic.Bool{}, make(chan struct{})
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return illDisk{fs, ill, wait}, err
	}
	defer func() { openFiles = logFiles }()
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	defer stop(t, g)
	send := func(from, n uint64) {
		c := dial(t, address(g, "a"))
		defer c.Close()
		write(t, c, frames(from, n))
	}
	send(0, 10)
	stored(t, g, "a", 10)
	ill.Store(true)
	release := sync.OnceFunc(func() { ill.Store(false); close(wait) })
	defer release()
	send(10, 10)
	testenv.Until(t, time.Minute, "20 frames are booked", func() bool { return portOf(g, "a").Frames.OK == 20 })
	next := g.Config()
	next.Sources[0] = tcp("a")
	next.Sources[0].TCP.Listen = "127.0.0.2:0" // moved
	reloading := make(chan error, 1)
	go func() { reloading <- g.Reload(next) }()
	all := func(s ledger.Sheet) (ok uint64) {
		for _, p := range append(s.Ports, s.Leaving...) {
			ok += p.Frames.OK
		}
		return ok
	}
	testenv.Until(t, time.Minute, "the source is leaving", func() bool { return len(g.departing()) == 1 })
	for n := range 100 { // at every moment
		if ok := all(g.Sheet()); ok != 20 {
			t.Fatalf("look %d: the running sheet has %d frames, want 20", n, ok)
		}
		runtime.Gosched()
	}
	release()
	if err := <-reloading; err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the sheet of what has left is kept", func() bool {
		_ = g.save()
		return len(past(t, dir)) == 1 && len(g.Sheet().Leaving) == 0
	})
	if p := past(t, dir)[0].Sheet.Ports; len(p) != 1 || p[0].Frames.Stored != 20 {
		t.Errorf("kept: %+v", p)
	}
}

// Frames of a source that leaves while the log fails, and that stand in the log all the same, are
// stored by the books of the next start, and not dropped.
func TestLeavingWhileTheLogFails(t *testing.T) {
	ill := onIllDisk(t)
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"), tcp("b"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 10))
	stored(t, g, "a", 10)
	ill.Store(true)
	write(t, c, frames(10, 10))
	select {
	case <-g.Failed():
	case <-time.After(time.Minute):
		t.Fatal("the log does not fail")
	}
	testenv.Until(t, time.Minute, "20 frames are booked", func() bool { return portOf(g, "a").Frames.OK == 20 })
	reloaded(t, g, tcp("b"))
	if _, err := g.Stop("failed"); !errors.Is(err, seglog.ErrFailed) {
		t.Fatalf("the stop brings %v", err)
	}
	ill.Store(false)
	stop(t, start(t, dir, nil, tcp("b")))
	var all ledger.Frames
	var dropped uint64
	for _, s := range past(t, dir) {
		for _, p := range append(s.Sheet.Ports, s.Sheet.Leaving...) {
			all.OK, all.Stored, dropped = all.OK+p.Frames.OK, all.Stored+p.Frames.Stored,
				dropped+p.Frames.Dropped[causeFailed]
		}
	}
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, n := seglog.NewReader(fs, 0), uint64(0)
	defer r.Close()
	for ; err == nil; n++ {
		_, err = r.Next()
	}
	if n--; n <= 10 || all.OK != 20 || all.Stored != n || dropped != 20-n {
		t.Errorf("%d frames, %d stored, %d dropped, by the books; the log has %d", all.OK, all.Stored, dropped, n)
	}
}
