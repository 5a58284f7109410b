package recorder

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
)

// heard is what a herald has said.
type heard struct {
	h      *herald
	said   bytes.Buffer
	events []notify.Event
}

func newHeard() *heard {
	l := &heard{}
	l.h = newHerald(slog.New(slog.NewTextHandler(&l.said, nil)),
		func(e notify.Event) { l.events = append(l.events, e) })
	return l
}

// look shows it ports at a second, and returns the lines that it says.
func (l *heard) look(second int, edit func(*ledger.Sheet), ports ...ledger.Port) []string {
	l.said.Reset()
	s := ledger.NewSheet(1, 1, ports)
	if edit != nil {
		edit(&s)
	}
	l.h.look(&s, time.Duration(second)*time.Second, false)
	return strings.FieldsFunc(l.said.String(), func(r rune) bool { return r == '\n' })
}

func (l *heard) told() string {
	var all []string
	for _, e := range l.events {
		all = append(all, fmt.Sprintf("%s %s %d %v %v", e.Event, e.Trouble, e.Count, e.Sources, e.Seconds))
	}
	return strings.Join(all, "; ")
}

func lossy(id string, unseen uint64) ledger.Port {
	p := ledger.Port{ID: id, State: ledger.StateOpen, Proof: ledger.ProofNumbers, Heard: true}
	p.Frames.MissingUnseen = unseen
	return p
}

func gone(id string) ledger.Port {
	p := lossy(id, 0)
	p.State, p.OutageCount, p.Outages = ledger.StateWaiting, 1, []ledger.Outage{{From: 1, Cause: "input/output error"}}
	return p
}

// A loss is told when it begins, once a minute while it goes on, with how much, and when a minute
// has passed without.
func TestLossIsTold(t *testing.T) {
	l := newHeard()
	lost := uint64(0)
	var lines []string
	for second := 1; second <= 300; second++ {
		if second >= 10 && second <= 150 {
			lost += 2
		}
		for _, line := range l.look(second, nil, lossy("a", lost), lossy("b", 0)) {
			lines = append(lines, fmt.Sprintf("%d %s", second, line[strings.Index(line, "msg="):]))
		}
	}
	want := []string{
		`10 msg="begins: 2 frames never seen" trouble=missing_unseen sources=a`,
		`70 msg="goes on: 120 frames never seen" trouble=missing_unseen sources=a`,
		`130 msg="goes on: 120 frames never seen" trouble=missing_unseen sources=a`,
		`190 msg="goes on: 40 frames never seen" trouble=missing_unseen sources=a`,
		`210 msg="over: 282 frames never seen" trouble=missing_unseen sources=a lasted=2m20s`,
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	if got := l.told(); got != "begin missing_unseen 2 [a] 0; end missing_unseen 282 [a] 140" {
		t.Errorf("told %s", got)
	}
}

// What a peer has lost is told once: its source, which has its book when it is gone, is told of for
// what is new alone, also where the source leaves right then.
func TestLossOfAPeerThatLeavesIsToldOnce(t *testing.T) {
	of := func(id string, lost, book, hub uint64) ledger.Port {
		p := lossy(id, lost)
		p.Book, p.Hub = book, hub
		return p
	}
	for _, leaves := range []bool{false, true} {
		l := newHeard()
		l.look(1, nil, of("hub", 0, 1, 0), of("hub/10.0.0.7", 3, 2, 1), of("hub/10.0.0.8", 4, 3, 1))
		if leaves {
			l.h.close([]ledger.Port{of("hub", 5, 1, 0), of("hub/10.0.0.8", 4, 3, 1)}, 100*time.Second)
			l.look(100, nil, lossy("a", 0))
		} else {
			l.look(100, nil, of("hub", 5, 1, 0), of("hub/10.0.0.8", 4, 3, 1))
		}
		want := "begin missing_unseen 7 [hub/10.0.0.8 hub/10.0.0.7] 0; begin missing_unseen 2 [hub] 0; " +
			"end missing_unseen 7 [hub/10.0.0.8 hub/10.0.0.7] 0"
		if got := l.told(); got != want {
			t.Errorf("leaves %v: told %s, want %s", leaves, got, want)
		}
	}
}

// However many ports go and come, there is a line a minute when they go, and one when they come.
func TestFlappingPortsAreNoFlood(t *testing.T) {
	l := newHeard()
	lines := 0
	for second := 1; second <= 600; second++ {
		var ports []ledger.Port
		for n := range 50 {
			if id := fmt.Sprintf("p%02d", n); (second+n)%2 == 0 {
				ports = append(ports, gone(id))
			} else {
				ports = append(ports, lossy(id, 0))
			}
		}
		lines += len(l.look(second, nil, ports...))
	}
	if lines < 10 || lines > 22 || len(l.events) != lines {
		t.Errorf("%d lines, %d events in ten minutes", lines, len(l.events))
	}
}

// A port that is gone, and back, is told with its cause; so is one that was gone between two looks.
func TestAbsenceIsTold(t *testing.T) {
	l := newHeard()
	l.look(1, nil, lossy("a", 0), gone("b"))
	if got := l.look(5, nil, gone("a"), gone("b")); len(got) != 0 { // within a minute of the line before
		t.Errorf("%q", got)
	}
	if got := l.look(62, nil, gone("a"), gone("b")); len(got) != 1 ||
		!strings.Contains(got[0], `sources=a why="a: input/output error"`) {
		t.Errorf("%q", got)
	}
	if got := l.look(63, nil, lossy("a", 0), lossy("b", 0)); len(got) != 1 ||
		!strings.Contains(got[0], `over: not there" trouble=not_there sources="a, b" lasted=1m2s`) {
		t.Errorf("%q", got)
	}
	back := lossy("a", 0)
	back.OutageCount = 2
	if got := l.look(200, nil, back); len(got) != 1 || !strings.Contains(got[0], "begins: not there") {
		t.Errorf("%q", got)
	}
	if got := l.look(201, nil, back); len(got) != 1 || !strings.Contains(got[0], "over: not there") {
		t.Errorf("%q", got)
	}
}

// A source that is there, and is not read for want of room, is told of as long as that lasts, with
// its cause. At a stop what is over came and went, and what lasts begins.
func TestWantOfRoomIsTold(t *testing.T) {
	full := func(id string, to ledger.Time) ledger.Port {
		p := lossy(id, 0)
		p.OutageCount, p.Outages = 1, []ledger.Outage{{From: 1, To: to, Cause: outageNoMemory}}
		return p
	}
	l := newHeard()
	l.look(1, nil, lossy("a", 0))
	if got := l.look(2, nil, full("a", 0)); len(got) != 1 || !strings.Contains(got[0], "begins: not there") ||
		!strings.Contains(got[0], outageNoMemory) {
		t.Errorf("%q", got)
	}
	if got := l.look(8, nil, full("a", 0)); len(got) != 0 {
		t.Errorf("it lasts: %q", got)
	}
	if got := l.look(9, nil, full("a", 9)); len(got) != 1 || !strings.Contains(got[0], "lasted=7s") {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		open bool // at the look before
		to   ledger.Time
		want []string
	}{
		{false, 9, []string{"came and went: not there"}},
		{false, 0, []string{"begins: not there", "this is not over: not there"}},
		{true, 9, []string{"over: not there"}},
		{true, 0, []string{"this is not over: not there"}},
	} {
		l := newHeard()
		l.look(1, nil, lossy("a", 0))
		if c.open {
			l.look(2, nil, full("a", 0))
		}
		l.said.Reset()
		p := full("a", c.to)
		p.State = ledger.StateStopped
		s := ledger.NewSheet(1, 1, []ledger.Port{p})
		l.h.look(&s, 3*time.Second, true)
		got := strings.FieldsFunc(l.said.String(), func(r rune) bool { return r == '\n' })
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.Contains(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("open before: %v, over at %d: %q, want %q", c.open, c.to, got, c.want)
		}
	}
}

// What has begun and ended within the minute is a line of the journal, and no event: its end would
// never come.
func TestWhatWasBriefIsNoEvent(t *testing.T) {
	l := newHeard()
	l.look(1, nil, gone("a"), lossy("b", 0))
	l.look(2, nil, lossy("a", 0), gone("b"))
	l.look(3, nil, lossy("a", 0), lossy("b", 0))
	if got := l.look(62, nil, lossy("a", 0), lossy("b", 0)); len(got) != 1 ||
		!strings.Contains(got[0],
			`came and went: not there" trouble=not_there sources=b why="b: input/output error" times=1`) {
		t.Errorf("%q", got)
	}
	if got := l.told(); got != "begin not_there 0 [a] 0; end not_there 0 [a] 1" {
		t.Errorf("told %s", got)
	}
}

// In an event the source that lost most is first, those with the same go by their names.
func TestOrderOfSourcesInAnEvent(t *testing.T) {
	l := newHeard()
	l.look(1, nil, lossy("c", 1), lossy("d", 2), lossy("a", 1), lossy("b", 3))
	l.look(100, nil, lossy("c", 1), lossy("d", 2), lossy("a", 1), lossy("b", 3))
	if got := l.told(); got != "begin missing_unseen 7 [b d a c] 0; end missing_unseen 7 [b d a c] 0" {
		t.Errorf("told %s", got)
	}
}

// What earlier starts have lost is a trouble until it is acknowledged; what a source could not know
// is none.
func TestLossesOfEarlierStartsAreTold(t *testing.T) {
	l := newHeard()
	past := func(s *ledger.Sheet) {
		s.Past = &ledger.Past{Starts: 1, Damaged: ledger.Amount{Frames: 1}, Unproven: []string{"b"}, Unreadable: true}
	}
	if got := l.look(1, past, lossy("a", 0)); len(got) != 2 ||
		!strings.Contains(got[0], `begins: earlier: 1 frame damaged in 1 start`) ||
		!strings.Contains(got[0], "ack") || !strings.Contains(got[1], "trouble=history_unreadable") {
		t.Errorf("%q", got)
	}
	if got := l.look(2, past, lossy("a", 0)); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if got := l.look(11, nil, lossy("a", 0)); len(got) != 2 ||
		!strings.Contains(got[0], `over: earlier: 1 frame damaged`) {
		t.Errorf("%q", got)
	}
	if got := l.told(); got != "begin earlier_starts 0 [] 0; begin history_unreadable 0 [] 0; end earlier_starts 0 [] 10; end history_unreadable 0 [] 10" {
		t.Errorf("told %s", got)
	}
}

// What keeps the log from recording is told with what to do; so are a silence, and a step of the
// clock, also where a time service made it.
func TestTroublesOfTheLogAndTheClockAreTold(t *testing.T) {
	l := newHeard()
	full := func(s *ledger.Sheet) { s.Log = &ledger.LogState{Full: true} }
	if got := l.look(1, full, lossy("a", 0)); len(got) != 1 ||
		!strings.Contains(got[0], `begins: the disk is full" trouble=disk_full do="make room: frames wait`) {
		t.Errorf("%q", got)
	}
	if got := l.look(2, full, lossy("a", 0)); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := l.look(3, nil, lossy("a", 0)); len(got) != 1 || !strings.Contains(got[0], "over: the disk is full") ||
		!strings.Contains(got[0], "now=\"the log takes frames again;") {
		t.Errorf("%q", got)
	}
	failed := func(s *ledger.Sheet) { s.Log = &ledger.LogState{Error: "input/output error"} }
	if got := l.look(100, failed, lossy("a", 0)); len(got) != 1 ||
		!strings.Contains(got[0], `begins: nothing is recorded: input/output error" trouble=log_failed`) {
		t.Errorf("%q", got)
	}
	if got := l.look(101, nil, lossy("a", 0)); len(got) != 1 || !strings.Contains(got[0], "over: nothing is recorded") {
		t.Errorf("%q", got)
	}
	silent := lossy("a", 0)
	silent.SilentSince = 1
	if got := l.look(102, nil, silent); len(got) != 1 ||
		!strings.Contains(got[0], `begins: silent" trouble=silent sources=a`) {
		t.Errorf("%q", got)
	}
	if got := l.look(103, nil, lossy("a", 0)); len(got) != 1 ||
		!strings.Contains(got[0], `over: silent" trouble=silent sources=a`) {
		t.Errorf("%q", got)
	}
	on := true
	step := func(s *ledger.Sheet) {
		s.Clock = &ledger.Clock{Synchronised: &on, StepCount: 1, Steps: []ledger.ClockStep{{By: 1e9}}}
	}
	if got := l.look(104, step, lossy("a", 0)); len(got) != 1 || !strings.Contains(got[0], "begins: 1 clock step") ||
		!strings.Contains(got[0], "by 1s") {
		t.Errorf("%q", got)
	}
	l.events = nil
	s := ledger.NewSheet(1, 1, []ledger.Port{lossy("a", 3)})
	l.h.look(&s, time.Hour, true)
	if got := l.told(); got != "end clock_steps 1 [] 0; begin missing_unseen 3 [a] 0; end missing_unseen 3 [a] 0" {
		t.Errorf("told %s", got)
	}
}

// Damage to what is stored has a count, and is no loss that ends by itself: it is over when a look
// finds the segment whole, also in a later start, and a stop says that it is not.
func TestDamageOfTheLogIsAStateThatIsTold(t *testing.T) {
	damaged := func(s *ledger.Sheet) { s.LogDamage = &ledger.LogDamage{Places: 1, Records: 3} }
	one := newHeard()
	if got := one.look(1, damaged, lossy("a", 0)); len(got) != 1 ||
		!strings.Contains(got[0], `begins: 3 records stored that cannot be read`) {
		t.Errorf("%q", got)
	}
	for second := 2; second < 200; second++ {
		if got := one.look(second, damaged, lossy("a", 0)); len(got) != 0 {
			t.Fatalf("second %d: %q", second, got)
		}
	}
	s := ledger.NewSheet(1, 1, []ledger.Port{lossy("a", 0)})
	damaged(&s)
	one.said.Reset()
	one.h.look(&s, 200*time.Second, true)
	if got := one.told(); got != "begin log_damaged 0 [] 0" ||
		!strings.Contains(one.said.String(), "this is not over: 3 records stored") {
		t.Errorf("told %s, said %s", got, one.said.String())
	}
	two := newHeard()
	two.h.adopt(one.h.open(0), int64(300*time.Second))
	two.look(1, damaged, lossy("a", 0))
	two.look(100, nil, lossy("a", 0))
	if got := two.told(); got != "begin log_damaged 0 [] 0; end log_damaged 0 [] 399" {
		t.Errorf("the next start told %s", got)
	}
}

// A source that is taken out, and its trouble with it, leaves nothing behind.
func TestHeraldForgets(t *testing.T) {
	l := newHeard()
	for second := 1; second < 2000; second += 100 {
		l.look(second, nil, lossy(fmt.Sprintf("peer-%d", second), 1), gone(fmt.Sprintf("gone-%d", second)))
	}
	l.look(3000, nil)
	for key, c := range l.h.matters {
		if len(c.counts)+len(c.open)+len(c.over) > 1 || len(l.h.ports) > 0 {
			t.Errorf("%s: %d counts, %d open, %d over", key, len(c.counts), len(c.open), len(c.over))
		}
	}
}

// Books that begin anew count from 0, and the last account of those before is told with the next
// look.
func TestLossesOfTwoBooksAreTold(t *testing.T) {
	l := newHeard()
	of := func(book, unseen uint64) ledger.Port {
		p := lossy("a", unseen)
		p.Book = book
		return p
	}
	for _, step := range []struct {
		second int
		closed uint64 // what the first book has lost in the end; 0: nothing is closed
		now    ledger.Port
		want   string
	}{
		{1, 0, of(1, 100), "begins: 100 frames never seen"},
		{100, 0, of(1, 100), "over: 100 frames never seen"},
		{101, 155, of(2, 0), "begins: 55 frames never seen"},
		{110, 0, of(2, 1), ""},
		{162, 0, of(2, 1), "begins: 1 frame never seen"},
		{299, 0, of(2, 1), "over: 1 frame never seen"},
	} {
		if step.closed > 0 {
			l.h.close([]ledger.Port{of(1, step.closed)}, time.Duration(step.second)*time.Second)
		}
		got := strings.Join(l.look(step.second, nil, step.now), "\n")
		if (step.want == "") != (got == "") || !strings.Contains(got, step.want) {
			t.Errorf("second %d: %q, want %q", step.second, got, step.want)
		}
	}
	both := func(s *ledger.Sheet) { s.Leaving = []ledger.Port{of(2, 4)} }
	if got := strings.Join(l.look(300, both, of(3, 2)), "\n"); !strings.Contains(got,
		`begins: 5 frames never seen" trouble=missing_unseen sources=a`) {
		t.Errorf("of a book that is leaving, and the next: %q", got)
	}
}
