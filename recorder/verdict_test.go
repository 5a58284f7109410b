package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
	"github.com/tallywheel/tallywheel/seglog"
)

// A log that has failed is never green, whatever the sheet says.
func TestVerdictOfAFailedLog(t *testing.T) {
	ill := onIllDisk(t)
	g := start(t, t.TempDir(), nil, tcp("a"))
	ill.Store(true)
	if err := g.log.Sync(); !errors.Is(err, seglog.ErrFailed) {
		t.Fatal(err)
	}
	if v := g.Sheet().Verdict; v.Level != ledger.Bad || !strings.HasPrefix(v.Text, "nothing is recorded: ") ||
		!strings.Contains(v.Text, errIll.Error()) {
		t.Errorf("%+v", v)
	}
	if _, err := g.Stop("test"); !errors.Is(err, errIll) {
		t.Error(err)
	}
}

// waitingDisk is a log's directory whose files cannot be written for now while waits is set.
type waitingDisk struct {
	seglog.FS
	waits *atomic.Bool
}

func (d waitingDisk) Create(name string) (seglog.File, error) { return d.file(d.FS.Create(name)) }
func (d waitingDisk) Open(name string) (seglog.File, error)   { return d.file(d.FS.Open(name)) }

func (d waitingDisk) file(f seglog.File, err error) (seglog.File, error) {
	return waitingFile{f, d.waits}, err
}

type waitingFile struct {
	seglog.File
	waits *atomic.Bool
}

func (f waitingFile) WriteAt(b []byte, off int64) (int, error) {
	if f.waits.Load() {
		return 0, syscall.EAGAIN
	}
	return f.File.WriteAt(b, off)
}

// A log that waits for an error to pass is in the verdict, in what healthz asks, in the sample, and
// in the journal once at each end.
func TestLogThatWaitsIsTold(t *testing.T) {
	waits := &atomic.Bool{}
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return waitingDisk{fs, waits}, err
	}
	defer func() { openFiles = logFiles }()
	g := start(t, t.TempDir(), nil, tcp("a"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 5))
	stored(t, g, "a", 5)
	if l := g.Sheet().Log; l != nil {
		t.Errorf("trouble: %+v", l)
	}
	waits.Store(true)
	write(t, c, frames(5, 5))
	testenv.Until(t, 10*time.Second, "the log waits", func() bool { return g.Sheet().Log != nil })
	if v := g.Sheet().Verdict; v.Level != ledger.Bad || !strings.HasPrefix(v.Text, "the log waits") ||
		g.LogNow().Stalled == "" {
		t.Errorf("%+v, %+v", v, g.LogNow())
	}
	var said bytes.Buffer
	h := newHerald(slog.New(slog.NewTextHandler(&said, nil)), func(notify.Event) {})
	look := func(at time.Duration) {
		for range 3 {
			s := g.Sheet()
			h.look(&s, at, false)
		}
	}
	look(time.Second)
	waits.Store(false)
	stored(t, g, "a", 10)
	look(4 * time.Second)
	if lines := strings.Split(said.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "make room") ||
		!strings.Contains(lines[1], "over: the log waits") {
		t.Errorf("the journal: %q", lines)
	}
	if l := g.Sheet().Log; l != nil {
		t.Errorf("trouble: %+v", l)
	}
	stop(t, g)
}

// Each source says what it can prove, and when something was lost last.
func TestVerdictOfSources(t *testing.T) {
	nmea := lines("c", "")
	nmea.Frame.Check = "nmea"
	g := start(t, t.TempDir(), nil, tcp("a"), lines("b", ""), nmea)
	if v := g.Sheet().Verdict; v.Level != ledger.Watch || len(v.Unknown) != 2 || v.LastLoss != 0 {
		t.Errorf("before anybody has come: %+v", v)
	}
	for i, want := range []ledger.Proof{ledger.ProofNumbers, ledger.ProofNone, ledger.ProofChecks} {
		if p := g.Sheet().Ports[i]; p.Proof != want || p.Heard {
			t.Errorf("%s: %s, heard: %v; want %s", p.ID, p.Proof, p.Heard, want)
		}
	}
	c := dial(t, address(g, "a"))
	defer c.Close()
	before := ledger.Time(time.Now().UnixNano())
	write(t, c, append(frames(0, 5), frames(7, 3)...))
	stored(t, g, "a", 8)
	s := g.Sheet()
	if v := s.Verdict; v.Level != ledger.Bad || v.LostWire.Frames != 2 || v.LastLoss < before || v.LastLoss > s.At ||
		!s.Ports[0].Heard {
		t.Errorf("%+v of %+v", v, s.Ports[0])
	}
	stop(t, g)
}

// The last sheet says of a source what held when the stop began: one that was gone is not there,
// and one that the stop itself has closed was.
func TestVerdictOfAStop(t *testing.T) {
	for name, all := range map[string]bool{"one connection": false, "all connections": true} {
		for _, gone := range []bool{false, true} {
			src := tcp("a")
			if all {
				src.TCP.Peers = config.PeersAll
			}
			dir := t.TempDir()
			g := start(t, dir, nil, src)
			c := dial(t, address(g, "a"))
			write(t, c, frames(0, 5))
			last := func() ledger.Port { ports := g.Sheet().Ports; return ports[len(ports)-1] }
			testenv.Until(t, time.Minute, "the frames are stored", func() bool { return last().Frames.Stored == 5 })
			want := ledger.Good
			if gone {
				c.Close()
				testenv.Until(t, time.Minute, "the end is noticed",
					func() bool { return last().State == ledger.StateWaiting })
				want = ledger.Watch
			}
			s := stop(t, g)
			c.Close()
			if v := s.Verdict; v.Level != want || hasReason(v, "not_there") != gone ||
				strings.Contains(v.Text, "all open") == gone {
				t.Errorf("%s, gone: %v: %+v", name, gone, v)
			}
			if kept, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler)); err != nil ||
				kept.Sheet.Verdict.Level != want {
				t.Errorf("%s, gone: %v: on disk %+v, %v", name, gone, kept, err)
			}
		}
	}
}

// hears has a recorder tell its troubles to nobody but the test, which asks for them.
func hears(g *Recorder) (told func() string) {
	l := &heard{}
	g.saving.Lock()
	g.herald.tell = func(e notify.Event) { l.events = append(l.events, e) }
	g.saving.Unlock()
	return func() string {
		g.saving.Lock()
		defer g.saving.Unlock()
		return l.told()
	}
}

// A stop makes the connections deaf that it reads to their end, and so ends them: that is no
// absence, in no sheet, and is told to nobody. Neither is a device that goes while the recorder
// stops. One that was away when the stop began is told, though nobody has looked since.
func TestStopTellsOfNoAbsenceOfItsOwn(t *testing.T) {
	all := tcp("a")
	all.TCP.Peers = config.PeersAll
	for name, src := range map[string]config.Source{"listen": tcp("a"), "all": all, "dial": {}} {
		for _, how := range []string{"stays", "goes meanwhile", "is away"} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if name == "dial" {
				src = tcp("a")
				src.TCP = &config.Net{Dial: l.Addr().String()}
			}
			g := start(t, t.TempDir(), nil, src)
			close(g.quit) // nobody looks
			g.done.Wait()
			g.quit = make(chan struct{})
			g.done.Go(g.settle)
			told := hears(g)
			var c net.Conn
			if name != "dial" {
				c = dial(t, address(g, "a"))
			} else if c, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
			write(t, c, frames(0, 5))
			last := func() ledger.Port { ports := g.Sheet().Ports; return ports[len(ports)-1] }
			testenv.Until(t, time.Minute, "the frames are stored", func() bool { return last().Frames.Stored == 5 })
			if err := g.second(); err != nil {
				t.Error(err)
			}
			before, want := last().OutageCount, ""
			l.Close() // it cannot come back
			switch how {
			case "goes meanwhile":
				for _, p := range g.snapshot() {
					p.lane.ends()
				}
				c.Close()
				testenv.Until(t, time.Minute, "the end is noticed",
					func() bool { return last().State != ledger.StateOpen })
			case "is away":
				c.Close()
				testenv.Until(t, time.Minute, "the end is noticed",
					func() bool { return last().State == ledger.StateWaiting })
				before, want = before+1, fmt.Sprintf("begin not_there 0 [%s] 0", last().ID)
			}
			s := stop(t, g)
			c.Close()
			if got := told(); got != want {
				t.Errorf("%s, %s: told %q, want %q", name, how, got, want)
			}
			if p := s.Ports[len(s.Ports)-1]; p.OutageCount != before ||
				how == "is away" && !strings.HasPrefix(p.Outages[len(p.Outages)-1].Cause, "end of stream") {
				t.Errorf("%s, %s: %+v, want %d outages", name, how, p.Outages, before)
			}
		}
	}
}
