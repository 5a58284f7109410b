package api

import (
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// What was removed counts for whoever asks for records since a time that the oldest one is not
// before: once, by whichever way. Behind a time that is still to come nothing is gone.
func TestGoneSinceATime(t *testing.T) {
	s, first := servedWithoutTheOldest(t)
	const old, future = "from_time=2020-01-01T00:00:00Z", "from_time=2200-01-01T00:00:00Z"
	records := s.URL() + "api/v1/records?"

	_, p := pageOf(t, records+future)
	if p.Gone != 0 || !p.End || !strings.HasPrefix(p.Cursor, p.Log+"-600-") {
		t.Errorf("of the future: %+v; want none gone, up to record 600", p)
	}
	for _, place := range []string{"&cursor=" + p.Cursor, "&cursor=" + p.Log + "-0", "&from_seq=1"} {
		if _, p := pageOf(t, records+future+place); p.Gone != 0 || !p.End || len(p.Records) > 0 {
			t.Errorf("of the future, from %s: %d gone, end %v", place, p.Gone, p.End)
		}
	}
	e := openStream(t, s.URL()+"api/v1/stream?"+future, "1")
	if ev := e.next(t); ev.name != "" || ev.id == "" {
		t.Errorf("a stream of the future begins with %+v; want an id", ev)
	}
	e.close()

	for _, c := range []struct {
		query, place string
		gone         uint64
	}{
		{"order=newest&" + old, "", first - 1},
		{"order=newest&" + old, "&from_seq=49", 49},
		{"order=newest&" + future, "", 0},
		{"order=newest", "", 0}, // down to the oldest, whichever that is
		{"order=oldest&" + old, "", first - 1},
	} {
		gone, page := uint64(0), testPage{}
		for n := 0; !page.End; n++ {
			if n > 20 {
				t.Fatalf("%s: no end", c.query)
			}
			_, page = pageOf(t, records+c.query+"&limit=100"+c.place)
			c.place = "&cursor=" + page.Cursor
			if gone += page.Gone; page.Gone > 0 && !page.End && strings.Contains(c.query, "newest") {
				t.Errorf("%s: page %d has %d gone, and is not the last", c.query, n, page.Gone)
			}
		}
		if gone != c.gone {
			t.Errorf("%s: %d gone; want %d", c.query, gone, c.gone)
		}
	}
}

// servedWithoutTheOldest serves a log that has removed what was before the record first.
func servedWithoutTheOldest(t *testing.T) (s *Server, first uint64) {
	t.Helper()
	g, s, c := served(t, func(c *config.Config) { c.Log.Keep.Size = 3 << 20 }, device.large)
	write(t, c, lengths(600, 16_000))
	stored(t, g, "a", 600)
	testenv.Until(t, 20*time.Second, "the oldest records are gone", func() bool {
		at := g.Position()
		first = at.First
		return first > 100 && at.Bytes <= 3<<20
	})
	return s, first
}
