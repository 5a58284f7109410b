package recorder

import (
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// fullDisk is a log whose disk is full while it stands still.
type fullDisk struct{ standingLog }

func (s *fullDisk) TryAppendAt(stream uint32, time int64, offset uint64, data []byte) (uint64, error) {
	seq, err := s.standingLog.TryAppendAt(stream, time, offset, data)
	if err != nil {
		err = seglog.ErrDiskFull
	}
	return seq, err
}

// relayed is a source in another process, which runs over into a file.
type relayed struct {
	t     *testing.T
	log   fullDisk
	rm    *remote
	near  *spool.Producer
	relay *spool.Relay
	sent  uint64 // frames
	bytes uint64
}

// spillTestFile is the file of a relay.
type spillTestFile struct{ *os.File }

func (f spillTestFile) Room() (int64, error) { return 1 << 40, nil }

func (f spillTestFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func newRelayedSource(t *testing.T) *relayed {
	r := &relayed{t: t}
	bell, err := isolate.NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	var spools [2]*spool.Spool
	for i, cfg := range []spool.Config{
		{Size: 16 << 10, Marks: 64, Room: spool.RelayRoom},
		{Size: 16 << 10, Marks: 64, Room: spool.MaxRoom},
	} {
		if spools[i], err = spool.Create(cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = spools[i].Close() })
	}
	cfg := config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowSpill, Buffer: 2000, Spill: &config.Spill{Max: 1 << 20},
	}
	l, err := newLane(cfg, &r.log, frameStream, wasteStream)
	if err != nil {
		t.Fatal(err)
	}
	play, err := newSpooled(l, spools[1], &r.log, spool.Steady)
	if err != nil {
		t.Fatal(err)
	}
	r.rm = &remote{
		iso: &isolation{bell: bell, stopping: make(chan struct{})}, lane: l, spool: spools[1], play: play,
		ended: make(chan struct{}), spent: make(chan struct{}),
	}
	r.log.rng = rand.New(rand.NewPCG(testenv.Seed(t), 1))
	r.rm.iso.remotes = []*remote{r.rm}
	r.relay, err = spool.NewRelay(spools[0], spools[1], spool.RelayConfig{
		Max: 1 << 20, Failed: func(err error) { t.Errorf("the file: %v", err) },
		Open: func() (spool.SpillFile, error) {
			f, err := os.CreateTemp(t.TempDir(), "spill")
			return spillTestFile{f}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.near, err = spools[0].Producer(0); err != nil {
		t.Fatal(err)
	}
	if err := r.near.Note(spool.Mark{Kind: spool.Opened}); err != nil {
		t.Fatal(err)
	}
	return r
}

// feed reads frames from the device, eight at a time.
func (r *relayed) feed(n int) {
	r.t.Helper()
	for range n {
		b := frames(r.sent, 8)
		read := func(_ int, to []byte) (int, syscall.Errno) { return copy(to, b), 0 }
		if _, err := r.near.ReadWhole(spool.Chunk, len(b), spool.Moment{Wall: int64(r.sent)}, 0, read); err != nil {
			r.t.Fatal(err)
		}
		r.sent, r.bytes = r.sent+8, r.bytes+uint64(len(b))
		r.move()
	}
}

// move moves on what there is, and shows what the log takes.
func (r *relayed) move() {
	r.t.Helper()
	for more := true; more; {
		var err error
		if more, err = r.relay.Step(); err != nil {
			r.t.Fatal(err)
		}
	}
	r.show()
}

// show shows what the log takes.
func (r *relayed) show() {
	r.rm.iso.round()
	r.log.visible = len(r.log.all)
	r.rm.lane.settle(seglog.Commit{Stored: r.log.stored(), Durable: r.log.stored()}, 2e18)
}

// TestRelayedWhileTheDiskIsFull has the log stand still for longer than both spools last: nothing
// is dropped, the sheet says how much waits, and all is stored once the log goes on, in order.
func TestRelayedWhileTheDiskIsFull(t *testing.T) {
	r := newRelayedSource(t)
	r.feed(10)
	r.log.stands = true
	r.feed(200)
	p := r.rm.lane.sheet()
	if p.Spilled < 64<<10 || len(p.Frames.Dropped) > 0 || p.Bytes.Read+p.Spilled > r.bytes || len(p.Unbalanced) > 0 {
		t.Errorf("with a full disk, and %d bytes that were read: %+v", r.bytes, p)
	}
	r.log.stands = false
	testenv.Until(t, time.Minute, "all is stored", func() bool {
		r.move()
		return r.rm.lane.sheet().Frames.Stored == r.sent
	})
	p = r.rm.lane.sheet()
	if f := p.Frames; p.Spilled > 0 || len(f.Dropped) > 0 || f.Missing > 0 || f.Late > 0 || len(p.Unbalanced) > 0 {
		t.Errorf("once all is stored: %+v", p)
	}
	var got []byte
	for _, rec := range r.log.all {
		if rec.Stream == frameStream {
			got = append(got, rec.Data...)
		}
	}
	if !slices.Equal(got, frames(0, r.sent)) {
		t.Error("what is stored is not what was sent")
	}
}

// TestRelayedIsNamed stops a source while its log stands still: what is in the file is named.
func TestRelayedIsNamed(t *testing.T) {
	r := newRelayedSource(t)
	r.log.stands = true
	r.feed(200)
	port, _ := newRemotePort(r.rm.lane, r.rm, slog.New(slog.DiscardHandler))
	if n := r.rm.unshown(); n < 64<<10 {
		t.Errorf("%d bytes are not shown", n)
	}
	n, _ := r.rm.rest()
	port.lane.untake(n)
	p := port.lane.sheet()
	if got := p.Bytes.Read + p.Unread[unreadStopped]; got != r.bytes || p.Spilled > 0 || len(p.Unbalanced) > 0 {
		t.Errorf("%d bytes read, %d unread: %d of %d; %v", p.Bytes.Read, p.Unread[unreadStopped], got, r.bytes,
			p.Unbalanced)
	}
}

// TestLeaveNamesWhatHasRunOver ends the reader while its file holds something, which the recorder
// that leaves cannot bring back: it is to say how much that is.
func TestLeaveNamesWhatHasRunOver(t *testing.T) {
	r := newRelayedSource(t)
	r.log.stands = true
	r.feed(200)
	r.relay.Close()
	r.log.stands = false
	iso := r.rm.iso
	var journal strings.Builder
	iso.log = slog.New(slog.NewTextHandler(&journal, nil))
	testenv.Until(t, time.Minute, "what is in memory is stored", func() bool {
		r.show()
		return iso.isShown() && r.rm.lane.sheet().Frames.InFlight == 0
	})
	waiting := iso.overWaits()
	read := r.rm.lane.sheet().Bytes.Read
	if n := waiting["a"]; n < 64<<10 || read+n != r.bytes {
		t.Errorf("%d bytes were read, and %v wait, of %d", read, waiting, r.bytes)
	}
	if !strings.Contains(journal.String(), "source=a bytes=") {
		t.Errorf("the journal says %q", journal.String())
	}
}

// TestStopWithAFullFile stops the recording while its disk is full, and so is the file: the reader
// has come to its end, and has no room to say so but on the shelf. It is not blamed, and what it
// discarded is in the account.
func TestStopWithAFullFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelayedSource(t)
		r.rm.lane.number = 3
		r.log.stands = true
		r.feed(200)
		iso := r.rm.iso
		iso.ports = map[string]isolate.Port{}
		s := int64(time.Second)
		unread := func(from, to int64, why uint32) {
			r.rm.spool.Block(from, why)
			r.rm.spool.Unblock(time.Duration(to - from))
		}
		if err := r.rm.play.tell(spool.Mark{ // it comes before the same is seen beside the marks
			Time: 3 * s, Kind: spool.Unattended, A: spool.NoRoom, B: uint64(s),
		}); err != nil {
			t.Fatal(err)
		}
		unread(3*s, 4*s, spool.NoRoom)
		unread(5*s, 7*s, spool.SpillFull)
		unread(8*s, 9*s, spool.SpillFailed)
		end, err := json.Marshal(isolate.Port{Why: "it was closed", Ended: 3, Lost: 1500})
		if err != nil {
			t.Fatal(err)
		}
		if err := iso.heard(isolate.Entry{Name: isolate.PortOf("a"), Data: end}); err != nil {
			t.Fatal(err)
		}
		var journal strings.Builder
		source, _ := newRemotePort(r.rm.lane, r.rm, slog.New(slog.NewTextHandler(&journal, nil)))
		all := []*port{source}
		iso.stop()
		source.playToEnd(time.Now().Add(finishPatience), func() {})
		p := source.lane.sheet()
		if got := p.Bytes.Read + p.Unread[unreadStopped]; got != r.bytes+1500 || len(p.Unbalanced) > 0 {
			t.Errorf("%d bytes read, %d unread: %d of %d; %v", p.Bytes.Read, p.Unread[unreadStopped], got,
				r.bytes+1500, p.Unbalanced)
		}
		want := []ledger.Outage{
			{From: ledger.Time(3 * s), To: ledger.Time(4 * s), Cause: outageNoMemory},
			{From: ledger.Time(5 * s), To: ledger.Time(7 * s), Cause: outageSpillFull},
			{From: ledger.Time(8 * s), To: ledger.Time(9 * s), Cause: outageSpillFailed},
		}
		if !slices.Equal(p.Outages, want) {
			t.Errorf("outages %+v, want %+v", p.Outages, want)
		}
		if n := source.lane.notTaken(); n != p.Unread[unreadStopped] || unended(all) != nil ||
			strings.Contains(journal.String(), "the reader") {
			t.Errorf("the log has not taken %d of %v; %v; the journal:\n%s", n, p.Unread, unended(all), &journal)
		}
	})
}
