package recorder

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// killedInFlight is the folder of a recorder that was killed when it had read the frames 10, 11, 13
// and 14 of a device, and its sheet had them, and the log has stored no more than the first n.
func killedInFlight(t *testing.T, source config.Source, n int) string {
	t.Helper()
	return killedInFlightBeside(t, source, n, false)
}

// killedInFlightBeside is killedInFlight; with beside the device came over a second connection of
// its address.
func killedInFlightBeside(t *testing.T, source config.Source, n int, beside bool) string {
	t.Helper()
	dir := t.TempDir()
	g := start(t, dir, func(c *config.Config) { c.Log.Delay = time.Minute }, source)
	if beside {
		defer dialFrom(t, 1, address(g, source.ID)).Close()
		testenv.Until(t, 20*time.Second, "there is a peer", func() bool { return len(g.Sheet().Ports) == 2 })
	}
	c := dialFrom(t, 1, address(g, source.ID))
	write(t, c, append(of(1, 10, 2), of(1, 13, 2)...))
	testenv.Until(t, 20*time.Second, "the frames are read", func() bool {
		f, _, _ := total(t, g.Sheet(), source.ID)
		return f.InFlight == 4
	})
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	c.Close()
	stop(t, g)
	streams, err := archive.LoadStreams(killed)
	if err != nil {
		t.Fatal(err)
	}
	name := source.ID
	if source.TCP.All() {
		name = peer(name, 1)
	}
	if beside {
		name = archive.Peer(name, "2")
	}
	stream, err := streams.Number(archive.Stream{Source: name, Frame: "tally128"})
	if err != nil {
		t.Fatal(err)
	}
	fs, err := seglog.Dir(killed)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []uint64{10, 11, 13, 14}[:n] {
		if _, err := log.Append(stream, 1, of(1, number, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return killed
}

// missingOf is what the newest start in the history that was killed calls missing.
func missingOf(t *testing.T, dir string) uint64 {
	t.Helper()
	f, _, _ := total(t, lastKept(t, dir, archive.CauseKilled).Sheet, "plant")
	return f.Missing
}

// A recorder that is killed when nothing of a device is stored yet: the next one names what is not
// in the log, and of the gap that the sheet of the dead one has no number again.
func TestKilledBeforeAnythingOfADeviceIsStored(t *testing.T) {
	for n, want := range []uint64{9, 8, 7, 6, 5} { // of 10 to 19
		dir := killedInFlight(t, tcp("plant"), n)
		g := start(t, dir, nil, tcp("plant"))
		c := dial(t, address(g, "plant"))
		write(t, c, of(1, 20, 1))
		stored(t, g, "plant", 1)
		c.Close()
		f, _, _ := total(t, stop(t, g), "plant")
		if before := missingOf(t, dir); before != 1 || f.Missing != want {
			t.Errorf("%d stored: the one that was killed misses %d, want 1, and the next one %d, want %d",
				n, before, f.Missing, want)
		}
	}
}

// The same of a device that came over a second connection of its address, and comes over the first
// one behind the kill, or to a source that reads one connection by then: the gap that the sheet of
// the dead one has is not named again.
func TestKilledInFlightBesideAnother(t *testing.T) {
	for name, now := range map[string]config.Source{peer("plant", 1): all("plant", 4), "plant": tcp("plant")} {
		for n, want := range []uint64{9, 8, 7, 6, 5} { // of 10 to 19
			dir := killedInFlightBeside(t, all("plant", 4), n, true)
			g := start(t, dir, nil, now)
			c := dialFrom(t, 1, address(g, "plant"))
			write(t, c, of(1, 20, 1))
			storedInAll(t, g, "plant", 1)
			if f := portOf(g, name).Frames; f.Stored != 1 {
				t.Errorf("%s has %+v; want that it has the frame", name, f)
			}
			if n == 0 { // the one that the dead one misses
				write(t, c, of(1, 12, 1))
				storedInAll(t, g, "plant", 2)
			}
			c.Close()
			s := stop(t, g)
			f, _, _ := total(t, s, "plant")
			late := portIn(s, name).Frames.Late
			if before := missingOf(t, dir); before != 1 || f.Missing != want || (late == 1) != (n == 0) {
				t.Errorf("%s, %d stored: the one that was killed misses %d, want 1, and the next one %d, want %d; %d late",
					name, n, before, f.Missing, want, late)
			}
		}
	}
}

// A peer that makes room knows when it comes again what the sheet of an earlier start has counted
// behind its last number.
func TestMakingRoomKeepsTheGapsOfEarlierStarts(t *testing.T) {
	source := all("plant", 1)
	dir := killedInFlight(t, source, 2)
	g := start(t, dir, nil, source)
	comes := func(device int, sends []byte) {
		c := dialFrom(t, device, address(g, "plant"))
		defer c.Close()
		write(t, c, sends)
		testenv.Until(t, 20*time.Second, "there is a peer, and its frames are stored", func() bool {
			p := portOf(g, peer("plant", device))
			return p.ID != "" && p.Frames.Stored == uint64(len(sends)/tally128.Size)
		})
	}
	comes(1, nil)
	comes(2, of(2, 0, 1))
	comes(1, of(1, 20, 1))
	f, _, _ := total(t, stop(t, g), "plant")
	if before := missingOf(t, dir); before != 1 || f.Missing != 7 {
		t.Errorf("the one that was killed misses %d, want 1, and the next one %d, want 7", before, f.Missing)
	}
}

// Another lane of the address is not told of a device of which nothing is stored yet: it would call
// missing what is in flight here.
func TestNoLessonOfADeviceInFlight(t *testing.T) {
	l, _ := testLane(t, config.OverflowBlock)
	read := frames(10, 2)
	l.Arrived(read, len(read), 1)
	if ps := l.positions(); len(ps) != 1 || ps[0].Last != 9 {
		t.Errorf("in flight: accounted for are %+v, want up to 9", ps)
	}
	if ps := l.lesson(); len(ps) != 0 {
		t.Errorf("in flight: the lesson is %+v", ps)
	}
	l.settle(seglog.Commit{Stored: 1}, 1)
	if ps := l.lesson(); len(ps) != 1 || ps[0].Last != 10 {
		t.Errorf("one is stored: the lesson is %+v, want up to 10", ps)
	}
}

// What was in flight of a source without numbers when all was killed is in no book but the last
// sheet: the next start names it as a loss of the one that was killed, once.
func TestKilledWithFramesWithoutNumbersInFlight(t *testing.T) {
	dir := t.TempDir()
	line := config.Source{ID: "a", TCP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "line"}}
	g := start(t, dir, func(c *config.Config) { c.Log.Delay = time.Minute }, line)
	c := dial(t, address(g, "a"))
	write(t, c, []byte("one\ntwo\nthree\n"))
	testenv.Until(t, 20*time.Second, "the frames are read", func() bool { return portOf(g, "a").Frames.InFlight == 3 })
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	c.Close()
	stop(t, g)
	for range 2 { // starts behind it
		g = start(t, killed, nil, line)
		if past := g.Sheet().Past; past == nil || past.LostHere.Frames != 3 || past.Starts != 1 {
			t.Errorf("the past has %+v; want 3 frames lost here", past)
		}
		stop(t, g)
	}
	last := lastKept(t, killed, archive.CauseKilled)
	if f := last.Sheet.Ports[0].Frames; f.Dropped[archive.CauseByKill] != 3 || f.InFlight != 0 ||
		last.Sheet.Verdict.LostHere.Frames != 3 {
		t.Errorf("the one that was killed has %+v, and says %q", f, last.Sheet.Verdict.Text)
	}
	if l := last.Losses; len(l) != 1 || l[0].N != 3 || l[0].Cause != "dropped: killed" {
		t.Errorf("its losses are %+v", l)
	}
}
