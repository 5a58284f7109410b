package recorder

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

func TestClockSteps(t *testing.T) {
	c := &clockWatch{}
	wall, up := int64(1000), time.Duration(0) // a board that begins in 1970
	pass := func(d, set time.Duration) time.Duration {
		wall, up = wall+int64(d)+int64(set), up+d
		return c.at(wall, up)
	}
	for _, s := range []struct{ pass, set, want time.Duration }{
		{0, 0, 0},
		{time.Second, 0, 0},
		{time.Second, time.Millisecond, 0}, // slewed
		{time.Hour, 0, 0},                  // asleep
		{time.Second, 56 * 365 * 24 * time.Hour, 56 * 365 * 24 * time.Hour}, // NTP comes
		{time.Second, -time.Minute, -time.Minute},
		{time.Second, 0, 0},
	} {
		if got := pass(s.pass, s.set); got != s.want {
			t.Errorf("after %v, set by %v: %v", s.pass, s.set, got)
		}
	}
	if a := c.account(); a.StepCount != 2 || len(a.Steps) != 2 || a.Steps[1].By != -int64(time.Minute) {
		t.Errorf("%+v", a)
	}
	for range 2 * maxSteps {
		pass(time.Second, time.Minute)
	}
	if a := c.account(); a.StepCount != 2+2*maxSteps || len(a.Steps) != maxSteps {
		t.Errorf("%d steps, %d kept", a.StepCount, len(a.Steps))
	}
}

// The sheet says what the kernel says of the clock, and when it was set.
func TestSheetNamesTheClock(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	defer stop(t, g)
	on, err := sys.ClockSynchronised()
	c := g.Sheet().Clock
	if c == nil || c.StepCount != 0 || (c.Synchronised == nil) != (err != nil) || err == nil && *c.Synchronised != on {
		t.Fatalf("%+v; the kernel says %v, %v", c, on, err)
	}
	g.clock.mu.Lock()
	wall, up := g.clock.wall, g.clock.uptime
	g.clock.mu.Unlock()
	g.clock.at(wall+int64(time.Hour), up)
	c = g.Sheet().Clock
	// the tick reads, too
	hour := func(s ledger.ClockStep) bool { return (time.Duration(s.By) - time.Hour).Abs() < time.Minute }
	if !slices.ContainsFunc(c.Steps, hour) || c.StepCount == 0 {
		t.Errorf("the clock was set by an hour: %+v", c)
	}
}

// Behind a step back of the clock no loss was later than now: what is lost then is the last loss.
func TestLastLossWhenTheClockIsSetBack(t *testing.T) {
	const hour = int64(time.Hour)
	g := start(t, t.TempDir(), nil, tcp("a"))
	defer stop(t, g)
	l := g.snapshot()[0].lane
	lostAt := func(at int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.in.book.At(at)
		l.in.book.Overrun()
	}
	last := func() int64 { return int64(portOf(g, "a").LastLoss) }
	lostAt(time.Now().UnixNano() + hour)
	g.clock.mu.Lock()
	g.clock.wall += hour // so it was at the last look
	g.clock.mu.Unlock()
	testenv.Until(t, time.Minute, "the loss is none of the time to come",
		func() bool { return last() <= time.Now().UnixNano() })
	before := last()
	if lostAt(before + 7); last() != before+7 {
		t.Errorf("something was lost at %d, and the last loss is at %d", before+7, last())
	}
}

// So it is with what a source lost that has left in this start, for the recorder that goes on with
// it and for the starts behind it, too.
func TestLastLossOfASourceThatLeftWhenTheClockIsSetBack(t *testing.T) {
	const hour = int64(time.Hour)
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"), tcp("b"))
	l := g.snapshot()[0].lane
	l.mu.Lock()
	l.in.book.At(time.Now().UnixNano() + hour)
	l.in.book.Damaged()
	l.mu.Unlock()
	last := func() int64 { return int64(g.Sheet().Verdict.LastLoss) }
	isOver := func() bool { now := time.Now().UnixNano(); return last() > 0 && last() <= now }
	reloaded(t, g, tcp("b"))
	testenv.Until(t, time.Minute, "a has left", func() bool { return len(g.departing()) == 0 })
	if !isOver() {
		t.Error("the books were closed behind the step: the last loss is one of the time to come")
	}
	g.acks.mu.Lock()
	past := *g.acks.past
	past.LastLoss += ledger.Time(hour) // so it was before the step
	g.acks.past = &past
	g.acks.mu.Unlock()
	g.clock.mu.Lock()
	g.clock.wall += hour
	g.clock.mu.Unlock()
	testenv.Until(t, time.Minute, "the loss is none of the time to come", isOver)
	if at := last(); at != last() {
		t.Error("the last loss goes on with the clock")
	}
	g.saving.Lock()
	g.loadAck()
	g.saving.Unlock()
	if !isOver() {
		t.Error("for a recorder that goes on the last loss is one of the time to come")
	}
	stop(t, g)
	g = start(t, dir, nil, tcp("b"))
	defer stop(t, g)
	if !isOver() {
		t.Error("for the next start the last loss is one of the time to come")
	}
	starts, _, err := archive.LastStarts(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if whole := &starts[0].Sheet; whole.Judge().LastLoss > whole.At {
		t.Errorf("the history has the loss in the time to come: %+v", whole)
	}
}

// No record seems older than it is because the clock was set, in this start or an earlier one, or
// is kept by nobody.
func TestAgeWhenTheClockIsSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	right := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	behind := right - int64(20*24*time.Hour) // a board that goes on where it was switched off
	yes, no := true, false
	for name, first := range map[string]int64{"since 1970": 1e9, "behind": behind} {
		c := &clockWatch{synchronised: &no}
		c.at(first, time.Minute)
		atFirst := first + int64(time.Second)
		c.at(first+int64(2*time.Minute), 3*time.Minute)
		if got := c.age(right - int64(2*year)); got > 2*time.Minute {
			t.Errorf("%s: a record of an earlier start is %v old though nobody keeps the clock", name, got)
		}
		c.at(right, 3*time.Minute+time.Second) // a time service comes
		c.synchronised = &yes
		if got := c.age(atFirst); got != 2*time.Minute {
			t.Errorf("%s: after the clock was set a record is %v old, want 2m0s", name, got)
		}
		c.at(right+int64(time.Hour), 4*time.Minute) // set again, by 59 minutes and a second
		if got, want := c.age(atFirst), 2*time.Minute+59*time.Second; got != want {
			t.Errorf("%s: after it was set twice a record is %v old, want %v", name, got, want)
		}
		if got := c.age(right + int64(time.Second)); got != 58*time.Second {
			t.Errorf("%s: a record of between is %v old, want 58s", name, got)
		}
		if got := c.age(right - int64(2*year)); got < 2*year {
			t.Errorf("%s: a record of years ago is %v old", name, got)
		}

		next := &clockWatch{synchronised: &no}
		next.carry(c.wrongTimes())
		next.at(right+int64(2*time.Hour), time.Minute)
		if got := next.age(atFirst); got != 0 {
			t.Errorf("%s: in the next start a record is %v old though nobody keeps the clock", name, got)
		}
		next.synchronised = &yes
		if got, want := next.age(atFirst), time.Hour+2*time.Minute+59*time.Second; got != want {
			t.Errorf("%s: in the next start a record is %v old, want %v", name, got, want)
		}
	}
	c := &clockWatch{synchronised: &yes}
	c.at(right, time.Minute)
	c.at(right+int64(time.Minute), 2*time.Minute)
	if got := c.age(1e9); got != time.Minute {
		t.Errorf("a record of 1970, of a start that nobody knows, is %v old; want the time since this start began", got)
	}
}

// Records of 1970 that an earlier start made stay where keep.age is an hour: what it removes is
// looked at before the spare is made.
func TestKeepAgeKeepsRecordsOfAWrongClock(t *testing.T) {
	dir := t.TempDir()
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 1 << 20})
	for range 300 {
		if err == nil {
			_, err = log.Append(1, 1, make([]byte, 10_000))
		}
	}
	if err = errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
	g := start(t, dir, func(c *config.Config) { c.Log.Keep.Age = time.Hour })
	testenv.Until(t, 10*time.Second, "there is a spare segment", func() bool {
		spares, err := filepath.Glob(filepath.Join(dir, "*.spare"))
		return err == nil && len(spares) > 0
	})
	if at := g.Position(); at.First != 1 {
		t.Errorf("the log begins with record %d", at.First)
	}
	stop(t, g)
}

// A clock that was set back between two starts is told: the outage does not end before it begins,
// and what the start behind it lost comes first in the list.
func TestClockSetBackBetweenStarts(t *testing.T) {
	const day = 24 * time.Hour
	dir, next := t.TempDir(), uint64(0)
	g := start(t, dir, nil, tcp("a"))
	lose(t, g, &next, 2)
	stop(t, g)
	left, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []*ledger.Time{&left.Sheet.At, &left.Sheet.Since, &left.Sheet.Ports[0].LastLoss} {
		*at += ledger.Time(day) // as if the clock had been ahead
	}
	for id := range left.ReadTo {
		left.ReadTo[id] += ledger.Time(day)
	}
	for i := range left.Losses {
		left.Losses[i].From += ledger.Time(day)
		left.Losses[i].To += ledger.Time(day)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, archive.HistoryFile)), left.Keep(dir),
		left.Save(dir, false)); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, nil, tcp("a"))
	defer stop(t, g)
	s := lose(t, g, &next, 3)
	if c := s.Clock; c.StepCount != 1 || !c.Steps[0].Between || time.Duration(c.Steps[0].By) > -day+time.Hour {
		t.Errorf("%+v", c)
	}
	if v := s.Verdict; int64(v.LastLoss) < g.since || int64(v.LastLoss) > time.Now().UnixNano() {
		t.Errorf("the last loss was at %s, in the start that began at %s", v.LastLoss, s.Since)
	}
	if o := s.Ports[0].Outages; len(o) == 0 || o[0].To < o[0].From ||
		!strings.HasSuffix(o[0].Cause, ledger.ClockSet) {
		t.Errorf("outages %+v", o)
	}
	if err := g.save(); err != nil { // and the list is of now
		t.Fatal(err)
	}
	all, _, err := g.Losses("")
	if err != nil || len(all) != 2 || all[0].N != 3 || all[0].Start != 0 || all[1].N != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// An outage in which the clock was set says so, also of a source that is not configured meanwhile,
// and where it did not end before it began: in a start, behind a reload, and over two starts.
func TestOutageSaysThatTheClockWasSet(t *testing.T) {
	dir := t.TempDir()
	nobody := config.Source{
		ID: "b", Serial: &config.Serial{Port: filepath.Join(dir, "none")}, Frame: config.Frame{Kind: "line"},
	}
	g := start(t, dir, nil, tcp("a"), nobody)
	says := func(source string) bool {
		o := portOf(g, source).Outages
		return len(o) > 0 && strings.HasSuffix(o[len(o)-1].Cause, ledger.ClockSet)
	}
	set := func() {
		g.clock.mu.Lock()
		defer g.clock.mu.Unlock()
		g.clock.wall -= int64(time.Hour) // so it was at the last look
	}
	set()
	testenv.Until(t, time.Minute, "b is away, and says that the clock was set", func() bool { return says("b") })
	reloaded(t, g, nobody)
	set()
	testenv.Until(t, time.Minute, "the recorder knows of the second step", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.places["a"].isSet
	})
	reloaded(t, g, tcp("a"), nobody)
	if !says("a") {
		t.Errorf("taken out while the clock was set, and back: %+v", portOf(g, "a").Outages)
	}
	stop(t, g)
	left, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	left.Sheet.At += ledger.Time(time.Hour) // as if the clock had been ahead, and nothing read for an hour
	if err := errors.Join(os.Remove(filepath.Join(dir, archive.HistoryFile)), left.Keep(dir),
		left.Save(dir, false)); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, nil, tcp("a"))
	defer stop(t, g)
	if o := portOf(g, "a").Outages; len(o) != 1 || !says("a") {
		t.Errorf("over two starts: %+v", o)
	}
}

// A start whose log has failed has ended when its stop says so, also where the clock was set back
// before that, and records are of a later time by the clock as it was: its outages, and those of
// the next start, meet there. A source that was away was in no outage in between.
func TestFailedLogWhereTheClockIsSetBack(t *testing.T) {
	const hour = ledger.Time(time.Hour)
	dir, ill := t.TempDir(), onIllDisk(t)
	g := start(t, dir, nil, tcp("a"), tcp("away"))
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(0, 100))
	stored(t, g, "a", 100)
	ill.Store(true)
	write(t, c, frames(100, 100))
	<-g.Failed()
	if _, err := g.Stop("test"); !errors.Is(err, errIll) {
		t.Fatal(err)
	}
	ill.Store(false)
	left, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
	if err != nil || !left.Uncertain {
		t.Fatal(left, err)
	}
	left.Sheet.At -= hour
	for id := range left.ReadTo {
		left.ReadTo[id] -= hour
	}
	for i := range left.Sheet.Ports {
		for j := range left.Sheet.Ports[i].Outages {
			o := &left.Sheet.Ports[i].Outages[j]
			o.From, o.To = o.From-hour, o.To-hour
		}
	}
	if err := left.Save(dir, false); err != nil {
		t.Fatal(err)
	}
	g = start(t, dir, nil, tcp("a"), tcp("away"))
	for id, at := range map[string]ledger.Time{"a": left.ReadTo["a"], "away": left.Sheet.At} {
		if o := portOf(g, id).Outages; len(o) != 1 || o[0].From != at {
			t.Errorf("%s: outages %+v; want one that begins at %v", id, o, at)
		}
	}
	stop(t, g)
}
