package recorder

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// Peers that make room at a time do so by one sheet. Before the first of them is taken off the
// keeper's shelf, the sheet on disk has the counts of all, and names their books, and so does what
// the shelf says of the source: whoever comes behind a kill at any moment counts each once.
func TestPeersMakeRoomByOneSheet(t *testing.T) {
	const places, each = 16, 10
	dir := t.TempDir()
	var mu sync.Mutex
	books := map[string]uint64{} // by the entry of its spool
	var named []uint64           // by what the shelf says of the source
	most, gone, stops := 0, uint64(0), false
	g, shelf, stop := startOnShelf(t, dir, func(m shelfWord) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case m.Op == "put" && strings.HasPrefix(m.Name, "lane/plant/"):
			var l isolate.Lane
			if err := json.Unmarshal(m.Data, &l); err != nil {
				t.Error(err)
			}
			books[m.Name] = l.Book
		case m.Op == "put" && m.Name == isolate.ClosedOf("plant"):
			var c isolate.Closed
			if err := json.Unmarshal(m.Data, &c); err != nil {
				t.Error(err)
			}
			named, most = c.Books, max(most, len(c.Books))
			gone += uint64(len(named))
			var stored uint64
			for _, n := range c.Open {
				stored += n
			}
			if stored != gone*each {
				t.Errorf("the shelf has %d frames of %d peers that have made room; want %d of each", stored, gone, each)
			}
		case m.Op == "drop" && books[m.Name] != 0 && !stops:
			s, err := archive.LoadStart(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			hub := portIn(s.Sheet, "plant")
			if book := books[m.Name]; !slices.Contains(named, book) || !slices.Contains(s.Dismissed, book) ||
				hub.Frames.Stored != gone*each {
				t.Errorf("%s is dropped, of book %d: the shelf names %v, the sheet on disk %v, with %d frames of %d peers",
					m.Name, book, named, s.Dismissed, hub.Frames.Stored, gone)
			}
			delete(books, m.Name)
		}
	}, all("plant", places))
	addr := shelf.address("plant")
	device := uint64(0)
	call := func() {
		device++
		c := dialFrom(t, int(device), addr)
		write(t, c, of(uint32(device), 0, each))
		_ = c.Close()
	}
	batch := func() int {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
	for range places {
		call()
	}
	storedInAll(t, g, "plant", device*each)
	for deadline := time.Now().Add(time.Minute); batch() < places/4; {
		if device > 200 || time.Now().After(deadline) {
			t.Fatalf("%d addresses are new, and %d make room by one sheet at most", device-places, batch())
		}
		g.saving.Lock() // no sheet is written while they connect
		for range places {
			call()
		}
		g.saving.Unlock()
		storedInAll(t, g, "plant", device*each)
	}
	if f, read, unread := total(t, g.Sheet(), "plant"); f.Stored != device*each || f.Missing+f.Duplicate > 0 ||
		read != device*each*128 || unread > 0 {
		t.Errorf("%+v, %d bytes read, %d unread; want %d frames", f, read, unread, device*each)
	}
	testenv.Until(t, time.Minute, "the keeper has all peers that are there", func() bool {
		mu.Lock()
		defer mu.Unlock()
		stops = uint64(len(books))+gone == device
		return stops
	})
	stop()
}
