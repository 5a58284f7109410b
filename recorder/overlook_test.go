package recorder

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// said is what a journal has.
type said struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *said) has(words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), words)
}

// A disk that does not answer holds the tick up. That is in the verdict, the journal and an event
// all the same, and so is its end.
func TestADiskThatDoesNotAnswerIsTold(t *testing.T) {
	defer func(d time.Duration) { noAnswer = d }(noAnswer)
	noAnswer = 10 * time.Millisecond
	n, journal := newReceiver(t), &said{}
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
	testenv.Until(t, time.Minute, "the sheet is saved", func() bool { return !hasReason(g.Sheet().Verdict, "sheet_unsaved") })
	if !journal.has("begins: "+silentDisk) || !journal.has("over: "+silentDisk) {
		t.Errorf("the journal has not both: %s", journal.b.String())
	}
	stop(t, g)
}

// A process that is held up says so; one that looks each second, more or less, says nothing.
func TestStandingStillIsTold(t *testing.T) {
	journal := &said{}
	s := stillness{log: slog.New(slog.NewTextHandler(journal, nil))}
	for _, up := range []time.Duration{100, 101, 102, 109, 110} {
		if s.look(up * time.Second) {
			t.Errorf("at %d s it stood still", up)
		}
	}
	if !s.look(150*time.Second) || !journal.has("stood still") || !journal.has("for=40s") {
		t.Errorf("after 40 s: %s", journal.b.String())
	}
	if s.look(151 * time.Second) {
		t.Error("it still stands still")
	}
}
