package isolate

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/reader"
)

// TestMemoryIsGivenBack has peers come and go: a reader keeps nothing of those that are gone, also
// where no collection finds it.
func TestMemoryIsGivenBack(t *testing.T) {
	for name, spill := range map[string]*Spill{"memory": nil, "a file": {Dir: t.TempDir(), Max: 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			st := newStage(t)
			ours, theirs := linkPair(t)
			c := &child{Process: Process{Role: Reader}, conn: ours, heard: make(chan struct{})}
			go st.k.listen(c, ours)
			read, err := reader.New(reader.Config{})
			if err != nil {
				t.Fatal(err)
			}
			r := &ports{
				link: newLink(theirs), log: slog.New(slog.DiscardHandler), bell: st.bell, read: read,
				lines: map[string]*line{}, ends: map[string]*line{}, known: map[string]adoption{},
			}
			lane, err := json.Marshal(Lane{Kind: Given, Spill: spill})
			if err != nil {
				t.Fatal(err)
			}
			open := func() int {
				all, err := os.ReadDir("/proc/self/fd")
				if err != nil {
					t.Skipf("SKIPPED: %v; mount /proc", err)
				}
				return len(all)
			}
			before := open()
			for i := range 20 {
				s, err := spool.Create(spool.Config{})
				if err != nil {
					t.Fatal(err)
				}
				fd, err := sys.Dup(int(s.File().Fd()))
				if err != nil {
					t.Fatal(err)
				}
				source := fmt.Sprint("x/", i)
				if err := r.take(Entry{Name: LaneOf(source), Data: lane, FDs: []int{fd}}); err != nil {
					t.Fatal(err)
				}
				if err := r.take(Entry{Name: LaneOf(source), Dropped: true}); err != nil {
					t.Fatal(err)
				}
				<-r.ends[source].done
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.take(Entry{Name: LaneOf("x"), Data: lane, FDs: []int{notASpool(t)}}); err == nil {
				t.Error("what is no spool was taken for one")
			}
			_ = theirs.Close()
			<-c.heard
			for _, e := range st.k.shelf {
				Entry{FDs: e.fds}.CloseFDs()
			}
			st.k.shelf = nil
			_ = read.Close()
			testenv.Until(t, time.Minute, "all descriptors are given back", func() bool { return open() <= before })
			_ = ours.Close()
		})
	}
}

// notASpool is memory of another kind.
func notASpool(t *testing.T) int {
	t.Helper()
	fd, err := sys.SealedMemory("other", 8192)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
