package rtfacts

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// TestImpossible: what the article says of the scheduler, the counter and the start is refuted by
// this Go, and the answer shows the line.
func TestImpossible(t *testing.T) {
	for shows, try := range map[string]func(*contestant.Turn) (contestant.Finding, error){
		"src/runtime/proc.go:":        scheduleChecks,
		"GOARCH=arm: unrecognized":    counterOfA7,
		"one of initcalls is among":   initCall,
		"calls globrunqput(gp): true": goschedQueue,
	} {
		f, err := try(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(f.Text, shows) || f.Yes != strings.HasSuffix(shows, "true") {
			t.Errorf("%+v, want %q", f, shows)
		}
	}
}
