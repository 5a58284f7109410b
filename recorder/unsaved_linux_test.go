package recorder

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// A peer that is to make room keeps its memory while no sheet can be written: a kill would take its
// counts. Who needs its place waits, the source says why, and nobody is refused.
func TestPeerMakesRoomOnceASheetIsWritten(t *testing.T) {
	dir := t.TempDir()
	first := isolate.LaneOf(peer("plant", 1))
	var gone atomic.Bool
	g, shelf, stop := startOnShelf(t, dir, func(m shelfWord) {
		if m.Op != "drop" || m.Name != first || gone.Swap(true) {
			return
		}
		s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Error(err)
		} else if f := portIn(s.Sheet, "plant").Frames; f.Stored != 10 || len(s.Dismissed) != 1 {
			t.Errorf("its memory goes, and the sheet on disk has %d frames of the source itself, and names books %v; want 10, and one",
				f.Stored, s.Dismissed)
		}
	}, all("plant", 2))
	addr := shelf.address("plant")
	for d := range uint64(2) {
		c := dialFrom(t, int(d)+1, addr)
		write(t, c, of(uint32(d+1), 0, 10))
		_ = c.Close()
		storedInAll(t, g, "plant", 10*(d+1))
	}
	testenv.Until(t, 20*time.Second, "the sheet on disk has both", func() bool {
		s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
		f, _, _ := total(t, s.Sheet, "plant")
		return err == nil && f.Stored == 20
	})
	inTheWay := filepath.Join(dir, "sheet.json.part") // a folder there keeps the sheet from being written
	if err := os.Mkdir(inTheWay, 0o755); err != nil {
		t.Fatal(err)
	}
	c := dialFrom(t, 3, addr)
	write(t, c, of(3, 0, 10))
	testenv.Until(t, 20*time.Second, "the source says why nobody is taken", func() bool {
		p := portOf(g, "plant")
		return gone.Load() || p.State == ledger.StateWaiting && strings.Contains(p.Why, "sheet cannot be written")
	})
	if gone.Load() {
		t.Fatal("its memory is given back, and no sheet has its counts")
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	storedInAll(t, g, "plant", 30)
	testenv.Until(t, 20*time.Second, "the first has made room", gone.Load)
	_ = c.Close()
	s := g.Sheet()
	f, _, unread := total(t, s, "plant")
	if refused := portIn(s, "plant").Refused; f.Stored != 30 || f.Missing > 0 || unread > 0 || refused != nil {
		t.Errorf("%+v, %d bytes unread, refused %v; want 30 frames", f, unread, refused)
	}
	stop()
}
