package recorder

import (
	"log/slog"
	"time"

	"github.com/tallywheel/tallywheel/internal/beat"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
	"github.com/tallywheel/tallywheel/seglog"
)

// noAnswer is how long a disk may need for what is due each second. Tests have less.
var noAnswer = seglog.NoAnswer

// overlook tells when the disk does not answer, on a goroutine that asks nothing of it: the tick,
// and with it the herald, waits for the disk then. What the tick would have told it tells itself
// when the disk answers.
func (r *Recorder) overlook() {
	next := time.NewTimer(beat.Next(time.Second))
	defer next.Stop()
	still := newStillness(r.slog)
	var since time.Duration // the tick waits since then, and that is told; 0: it is not
	for ; ; next.Reset(beat.Next(time.Second)) {
		select {
		case <-r.quit:
			if up, err := uptime(); err == nil { // who stood still may have been told to stop meanwhile
				still.look(up)
			}
			return
		case <-next.C:
		}
		if up, err := uptime(); err == nil && still.look(up) { // who stood still is no disk
			continue
		}
		now, began := time.Since(r.began), time.Duration(r.ticks.Load())
		if since != 0 && began != since { // it went on
			r.answered(now - since)
			since = 0
		}
		if since == 0 && began != 0 && now-began > noAnswer {
			r.unanswered()
			since = began
		}
	}
}

// stillFor is how long the process may be held up: a busy machine, or a slow one, does that.
const stillFor = 10 * time.Second

// stillness notices that the process, or the machine, stood still: nobody read then.
type stillness struct {
	log *slog.Logger
	at  time.Duration // the uptime at the last look, which counts while the machine is suspended; 0: there was none
}

// newStillness looks from now on.
func newStillness(log *slog.Logger) *stillness {
	s := &stillness{log: log}
	if up, err := uptime(); err == nil {
		s.at = up
	}
	return s
}

// look comes once a second, and reports whether it was held up.
func (s *stillness) look(uptime time.Duration) bool {
	held := uptime - s.at
	isFirst := s.at == 0
	if s.at = uptime; isFirst || held < stillFor {
		return false
	}
	s.log.Warn("the recorder, or the machine, stood still: what came meanwhile, and the kernel could not hold, is lost",
		"for", held.Round(time.Second))
	return true
}

const silentDisk = "the disk does not answer"

// unanswered tells that the disk does not answer.
func (r *Recorder) unanswered() {
	why := silentDisk
	r.unsaved.Store(&why)
	r.slog.Error("begins: "+silentDisk, "trouble", kindStalled, "do",
		"see to the disk, or to the network that it is behind: "+
			"frames wait, and `overflow` decides as their buffers fill; what else begins is told when the disk answers")
	r.teller.Tell(r.ofTheDisk("begin", 0))
}

// answered tells that it does.
func (r *Recorder) answered(lasted time.Duration) {
	r.slog.Info("over: "+silentDisk, "trouble", kindStalled, "lasted", lasted.Round(time.Second))
	r.teller.Tell(r.ofTheDisk("end", lasted))
}

const kindStalled = "log_stalled"

func (r *Recorder) ofTheDisk(what string, lasted time.Duration) notify.Event {
	return notify.Event{
		Event: what, Trouble: kindStalled, Level: string(ledger.Bad), Text: silentDisk, Sources: []string{},
		At: time.Now(), Seconds: lasted.Round(time.Second).Seconds(), Host: r.herald.host,
	}
}
