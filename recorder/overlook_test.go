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

// A disk that does not answer holds the tick up. That is in the verdict, the journal and an event all
// the same, and so is its end.
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
