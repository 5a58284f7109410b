package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// TestLogIsCutUnderAKill cuts the segment that is written to, anywhere in its records, under a
// recorder that is killed before it sees that. The next start names each record that is gone, and
// gives no number again.
func TestLogIsCutUnderAKill(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	_, sources := startLines(t, dir, 115_200, 57_600)
	durable := uint64(0) // the highest number that was said to be durable
	for life := range 4 {
		r := startRecorder(t, dir, sources)
		r.awaitStored(t, 300)
		var s ledger.Sheet
		if !r.get("api/v1/sheet", &s) {
			t.Fatal("there is no sheet")
		}
		freeze(t, r.Cmd.Process.Pid)
		from := uint64(0)
		eachLeft(t, data, func(rec archive.Record) {
			at := time.Unix(0, int64(s.Since)) // records have the time at which they were read
			if from == 0 && !rec.Time.Before(at) {
				from = rec.Seq
			}
		}, func(*seglog.GapError) {})
		if from <= durable {
			t.Fatalf("life %d: the first record is %d, and %d was durable", life, from, durable)
		}
		durable = from - 1
		for _, p := range s.Ports {
			durable += p.Frames.Durable
		}
		all := matches(t, filepath.Join(data, "*.seg"))
		newest := all[len(all)-1]
		b, err := os.ReadFile(newest)
		if err != nil {
			t.Fatal(err)
		}
		used := len(b)
		for used > 0 && b[used-1] == 0 {
			used--
		}
		if err := os.Truncate(newest, int64(used-6000-rng.IntN(20_000))); err != nil {
			t.Fatal(err)
		}
		if err := r.Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = r.Cmd.Wait()
	}
	r := startRecorder(t, dir, sources)
	r.awaitStored(t, 50)
	s := r.stop(t)
	if s.Recovered == nil || len(s.Recovered.Missing) != 1 || s.Recovered.Missing[0].To < durable ||
		s.Recovered.Missing[0].AtMost {
		t.Errorf("the log was durable up to %d; the sheet has %+v", durable, s.Recovered)
	}
}
