package isolate

import (
	"log/slog"
	"os"
	"testing"
	"time"
)

// TestProcessesOfTheShelf: a process that begins knows the three before it follows the link, itself
// and its crashes among them: somebody may ask it at once.
func TestProcessesOfTheShelf(t *testing.T) {
	var journal syncBuffer
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(&journal, nil))})
	ours, theirs := linkPair(t)
	before := &child{Process: Process{Role: Recorder, Since: time.Unix(1, 0)}}
	next := &child{
		Process: Process{Role: Recorder, PID: 5, Restarts: 3}, process: &os.Process{}, conn: ours,
		heard: make(chan struct{}),
	}
	k.give(next, before)
	link := newLink(theirs)
	if _, err := link.Shelf(); err != nil {
		t.Fatal(err)
	}
	all := link.Processes()
	if len(all) != 2 || all[0].Role != Keeper || all[1].Role != Recorder || all[1].PID != 5 || all[1].Restarts != 3 {
		t.Errorf("%+v", all)
	}
}
