package recorder

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/ledger"
)

// roomless is a source whose reader has no room: the log is behind.
type roomless struct {
	t     *testing.T
	spool *spool.Spool
	log   killable
	lane  *lane
	play  *spooled
}

func newRoomless(t *testing.T) *roomless {
	shared, err := spool.Create(spool.Config{})
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	t.Cleanup(func() { _ = shared.Close() })
	r := &roomless{t: t, spool: shared, log: killable{rng: rand.New(rand.NewPCG(1, 1))}}
	r.begin()
	r.lane.begin(1)
	return r
}

// begin has a recorder go on with the spool.
func (r *roomless) begin() {
	r.t.Helper()
	l, err := newLane(config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowBlock, Buffer: 2000,
	}, &r.log, frameStream, wasteStream)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.play, err = newSpooled(l, r.spool, &r.log, spool.Steady); err != nil {
		r.t.Fatal(err)
	}
	r.lane = l
}

// step has the recorder look, and holds the account to what is to be there.
func (r *roomless) step(when string, want ...ledger.Outage) {
	r.t.Helper()
	for range 3 { // the checkpoint that is due is saved, too
		if _, err := r.play.step(); err != nil {
			r.t.Fatal(err)
		}
	}
	if p := r.lane.account(); !slices.Equal(p.Outages, want) || p.OutageCount != uint64(len(want)) {
		r.t.Errorf("%s: %d outages %+v, want %+v", when, p.OutageCount, p.Outages, want)
	}
}

const second = int64(time.Second)

func outageFrom(from, to int64, why string) ledger.Outage {
	return ledger.Outage{From: ledger.Time(from * second), To: ledger.Time(to * second), Cause: why}
}

// The time in which there is no room is in the account while it lasts, so that it is in the last
// sheet of a start whose processes are all killed; a recorder that goes on has it once.
func TestWantOfRoomIsInTheAccountWhileItLasts(t *testing.T) {
	r := newRoomless(t)
	r.spool.Block(3*second, spool.NoRoom)
	r.step("it lasts", outageFrom(3, 0, outageNoMemory))
	r.spool.Block(3*second, spool.SpillFull)
	r.step("for another reason", outageFrom(3, 0, outageSpillFull))
	r.begin()
	r.step("another recorder", outageFrom(3, 0, outageSpillFull))
	r.spool.Unblock(2 * time.Second)
	r.spool.Block(6*second, spool.NoRoom)
	r.step("the next lasts", outageFrom(3, 5, outageSpillFull), outageFrom(6, 0, outageNoMemory))
	r.begin()
	r.spool.Unblock(time.Second)
	r.step("all is over", outageFrom(3, 5, outageSpillFull), outageFrom(6, 7, outageNoMemory))
	r.begin()
	r.step("a third recorder", outageFrom(3, 5, outageSpillFull), outageFrom(6, 7, outageNoMemory))
}

// A reader dies that had no room, and recorder and reader are both away: whoever is back first, the
// account has until when there was no room, and then that nobody read.
func TestReaderIsMissedThatHadNoRoom(t *testing.T) {
	const missed = outageReader + ", and is not there yet"
	for _, c := range []struct {
		name   string
		recent bool // the recorder had not looked while it lasted
	}{{"the recorder knows", false}, {"the recorder is new", true}} {
		r := newRoomless(t)
		r.spool.Block(3*second, spool.NoRoom)
		if !c.recent {
			r.step(c.name, outageFrom(3, 0, outageNoMemory))
		}
		r.lane.unattended(5*second, missed)
		r.spool.Unblock(2 * time.Second) // by the next reader
		r.step(c.name, outageFrom(3, 5, outageNoMemory), outageFrom(5, 0, missed))
		r.spool.Block(8*second, spool.NoRoom)
		r.step(c.name, outageFrom(3, 5, outageNoMemory), outageFrom(8, 0, outageNoMemory), outageFrom(5, 0, missed))
		if err := r.play.tell(spool.Mark{
			Time: 5 * second, Kind: spool.Unattended, A: spool.Killed, B: uint64(2 * second),
		}); err != nil {
			t.Fatal(err)
		}
		r.step(c.name, outageFrom(3, 5, outageNoMemory), outageFrom(8, 0, outageNoMemory), outageFrom(5, 7, missed))
	}
}

// A reader that is back in time is missed by nobody, however often it was told that it is away.
func TestReaderThatIsBackIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoomless(t)
		i := &isolation{alone: time.NewTimer(0), remotes: []*remote{{lane: r.lane}}}
		told := func(pid int) {
			i.processes = []isolate.Process{{Role: isolate.Reader, PID: pid, Since: time.Now()}}
			i.missReader()
		}
		told(0)
		told(0) // as where another process of the three changes
		told(7)
		time.Sleep(2 * readerMay)
		synctest.Wait()
		r.step("it is back")
		told(0)
		time.Sleep(2 * readerMay)
		synctest.Wait()
		if got := r.lane.account().Outages; len(got) != 1 {
			t.Errorf("it is away: %+v", got)
		}
	})
}

// A reader's last time without room is in the account with its end, which is all that comes.
func TestReaderEndsThatHadNoRoom(t *testing.T) {
	r := newRoomless(t)
	p, err := r.spool.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	r.spool.Block(3*second, spool.NoRoom)
	r.spool.Unblock(time.Second)
	if err := p.Note(spool.Mark{Kind: spool.Ended}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.play.step(); err != nil {
		t.Fatal(err)
	}
	want := []ledger.Outage{outageFrom(3, 4, outageNoMemory)}
	if got := r.lane.account().Outages; !r.play.ended || !slices.Equal(got, want) {
		t.Errorf("it has ended: %v; outages %+v", r.play.ended, got)
	}
}

// A mark that comes late, of a time that is in the account, does not end the one that lasts.
func TestMarkOfAWantOfRoomThatGoesOn(t *testing.T) {
	r := newRoomless(t)
	r.spool.Block(3*second, spool.NoRoom)
	r.spool.Unblock(time.Second)
	r.spool.Block(4*second+1, spool.NoRoom)
	r.step("it goes on", outageFrom(3, 0, outageNoMemory))
	if err := r.play.tell(spool.Mark{
		Time: 3 * second, Kind: spool.Unattended, A: spool.NoRoom, B: uint64(second),
	}); err != nil {
		t.Fatal(err)
	}
	r.step("by its mark", outageFrom(3, 0, outageNoMemory))
}

// A reader of a program that notes nothing beside its marks says by those when there was no room.
func TestWantOfRoomOfAnOlderReader(t *testing.T) {
	r := newRoomless(t)
	for range 2 {
		if err := r.play.tell(spool.Mark{
			Time: 3 * second, Kind: spool.Unattended, A: spool.NoRoom, B: uint64(second),
		}); err != nil {
			t.Fatal(err)
		}
	}
	r.step("by its mark", outageFrom(3, 4, outageNoMemory))
}

// A reader that has no room stands still until the recording has stopped: since when is in the
// account.
func TestStopWhileTheReaderStandsWithoutRoom(t *testing.T) {
	s := newStandstill(t, false)
	rm := s.port.remote
	rm.spool.Block(3*second, spool.NoRoom)
	rm.rest()
	if p := s.port.lane.sheet(); !slices.Equal(p.Outages, []ledger.Outage{outageFrom(3, 0, outageNoMemory)}) {
		t.Errorf("outages %+v", p.Outages)
	}
}
