package recorder

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// A disk that does not answer holds the tick up. That is in the verdict, the journal and an event
// all the same, and so is its end.
func TestADiskThatDoesNotAnswerIsTold(t *testing.T) {
	defer func(d time.Duration) { noAnswer = d }(noAnswer)
	noAnswer = 10 * time.Millisecond
	n, journal := newReceiver(t), &testenv.Buffer{}
	cfg := config.Config{
		Log: config.Log{Dir: t.TempDir(), Segment: 1 << 20, Reserve: 1 << 20}, Sources: []config.Source{tcp("a")},
		Notify: config.Notify{Webhook: n.URL},
	}
	g, err := Start(cfg, slog.New(slog.NewTextHandler(journal, nil)))
	if err != nil {
		t.Fatal(err)
	}
	g.saving.Lock() // as whoever waits for the disk with a sheet
	n.got(t, "begin log_stalled")
	if v := g.Sheet().Verdict; !hasReason(v, "sheet_unsaved") {
		t.Errorf("while it does not: %q", v.Text)
	}
	g.saving.Unlock()
	n.got(t, "end log_stalled")
	testenv.Until(t, time.Minute, "the sheet is saved",
		func() bool { return !hasReason(g.Sheet().Verdict, "sheet_unsaved") })
	testenv.Until(t, time.Minute, "the journal has both", func() bool {
		return strings.Contains(journal.String(), "begins: "+silentDisk) &&
			strings.Contains(journal.String(), "over: "+silentDisk)
	})
	stop(t, g)
}

// Who stood still, and was told to stop meanwhile, may stop before the next look is due: the
// journal has it all the same.
func TestStandingStillBeforeAStopIsTold(t *testing.T) {
	defer func() { uptime = realUptime }()
	var up atomic.Int64
	up.Store(int64(time.Hour))
	looked := make(chan struct{}, 1)
	uptime = func() (time.Duration, error) {
		now := time.Duration(up.Load())
		select {
		case looked <- struct{}{}:
		default:
		}
		return now, nil
	}
	journal := &testenv.Buffer{}
	r := &Recorder{slog: slog.New(slog.NewTextHandler(journal, nil)), quit: make(chan struct{})}
	var over sync.WaitGroup
	over.Go(r.overlook)
	<-looked
	up.Add(int64(time.Minute))
	close(r.quit)
	over.Wait()
	if !strings.Contains(journal.String(), "stood still") || !strings.Contains(journal.String(), "for=1m0s") {
		t.Errorf("the journal: %s", journal)
	}
}

// A process that is held up says so; one that looks each second, more or less, says nothing.
func TestStandingStillIsTold(t *testing.T) {
	journal := &testenv.Buffer{}
	s := stillness{log: slog.New(slog.NewTextHandler(journal, nil))}
	for _, up := range []time.Duration{100, 101, 102, 109, 110} {
		if s.look(up * time.Second) {
			t.Errorf("at %d s it stood still", up)
		}
	}
	if !s.look(150*time.Second) || !strings.Contains(journal.String(), "stood still") ||
		!strings.Contains(journal.String(), "for=40s") {
		t.Errorf("after 40 s: %s", journal.String())
	}
	if s.look(151 * time.Second) {
		t.Error("it still stands still")
	}
}

// What stands still in the first second of a start says so, too.
func TestStandingStillAtOnceIsTold(t *testing.T) {
	s := newStillness(quiet())
	up, err := uptime()
	if err != nil {
		t.Skipf("SKIPPED: the uptime of the machine is not known: %v; run this on Linux", err)
	}
	if !s.look(up + stillFor) {
		t.Error("it stood still since it began, and nothing was told")
	}
}
