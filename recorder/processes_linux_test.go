package recorder

import (
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
)

// A recorder that was begun a moment ago, and that the keeper has told nothing yet, knows itself.
func TestProcessesBeforeTheKeeperTells(t *testing.T) {
	began := time.Now()
	r := &Recorder{iso: &isolation{}, began: began}
	all := r.Processes()
	if len(all) != 1 || all[0].Role != isolate.Recorder || all[0].PID != os.Getpid() || !all[0].Since.Equal(began) {
		t.Errorf("%+v", all)
	}
	r.iso.processes = []isolate.Process{
		{Role: isolate.Keeper, PID: 1},
		{Role: isolate.Reader, PID: 2},
		{Role: isolate.Recorder, PID: 3},
	}
	if all = r.Processes(); len(all) != 3 {
		t.Errorf("%+v", all)
	}
}
