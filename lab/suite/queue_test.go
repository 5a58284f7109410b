package suite

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// A program that has not taken its start yet, as on a busy machine, gets no event: the two numbers
// would be one.
func TestNoEventBeforeTheStartIsTaken(t *testing.T) {
	events, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(events) }()
	signal(events, 1)
	program := time.AfterFunc(5*time.Millisecond, func() { sys.EventfdDrain(events) })
	defer program.Stop()
	if err := taken(events); err != nil {
		t.Error(err)
	}
	if waits, _, err := sys.PollIn(events, -1, 0); err != nil || waits {
		t.Errorf("the start still waits, %v", err)
	}
}
