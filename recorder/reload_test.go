package recorder

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// change reloads with one source edited.
func change(t *testing.T, g *Recorder, edit func(*config.Source)) {
	t.Helper()
	next := g.cfg
	next.Sources = append([]config.Source(nil), g.cfg.Sources...)
	if s := &next.Sources[0]; s.TCP != nil {
		tcp := *s.TCP
		s.TCP = &tcp
	}
	edit(&next.Sources[0])
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
}

// history is the sheets of sources and starts that have ended.
func past(t *testing.T, dir string) (all []archive.StartSheet) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, archive.HistoryFile))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := archive.EachStart(f, func(s archive.StartSheet) error { all = append(all, s); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestChangedSourceGoesOnWhereItWas(t *testing.T) {
	dir := t.TempDir()
	send := func(g *Recorder, from, n uint64) {
		c := dial(t, address(g, "a"))
		write(t, c, frames(from, n))
		c.Close()
	}
	g := start(t, dir, nil, tcp("a"))
	send(g, 0, 1000)
	stored(t, g, "a", 1000)
	stop(t, g)

	g = start(t, dir, nil, tcp("a"))
	send(g, 1000, 1000)
	stored(t, g, "a", 1000)
	for i, edit := range []func(*config.Source){ // of the books, of the peers, of the address
		func(s *config.Source) { s.Overflow = config.OverflowNewest },
		func(s *config.Source) { s.TCP.Peers = config.PeersFirst },
		func(s *config.Source) { s.TCP.Listen = "127.0.0.2:0" },
	} {
		change(t, g, edit)
		before := portOf(g, "a").Frames
		send(g, 2000+1500*uint64(i), 1000) // 500 frames are lost between this and the next
		stored(t, g, "a", before.Stored+1000)
		missing := uint64(500)
		if i == 0 {
			missing = 0
		}
		if f := portOf(g, "a").Frames; f.Missing-before.Missing != missing || f.Duplicate != 0 {
			t.Errorf("change %d: %+v after %+v; want %d more missing", i, f, before, missing)
		}
	}
	next := g.cfg
	next.Sources = nil
	if err := g.Reload(next); err != nil { // out, and in again
		t.Fatal(err)
	}
	next.Sources = []config.Source{tcp("a")}
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	send(g, 6007, 10)
	stored(t, g, "a", 10)
	if p := portOf(g, "a"); p.Frames.Missing != 7 || len(p.Outages) == 0 ||
		!strings.HasPrefix(p.Outages[0].Cause, outageTakenOut) {
		t.Errorf("taken out and in again: %+v, %+v; want 7 missing and an outage", p.Frames, p.Outages)
	}
	stop(t, g)
	g = start(t, dir, nil, tcp("a"))
	send(g, 6017, 1)
	stored(t, g, "a", 1)
	if f := portOf(g, "a").Frames; f.Missing != 0 {
		t.Errorf("the next start: %+v; want nothing missing", f)
	}
	stop(t, g)
}

// The first start has no other to go on from: a change goes on from what this one has stored,
// whether the books stay or begin anew.
func TestChangeInTheFirstStart(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	defer stop(t, g)
	feed(t, g, consecutive(0, 100)...)
	change(t, g, func(s *config.Source) { s.TCP.Listen = "127.0.0.2:0" })
	feed(t, g, consecutive(150, 100)...)
	if f := portOf(g, "a").Frames; f.Missing != 50 || f.OK != 100 {
		t.Errorf("%+v; want 50 missing in new books", f)
	}
	change(t, g, func(s *config.Source) { s.Overflow = config.OverflowNewest })
	feed(t, g, consecutive(257, 100)...)
	if f := portOf(g, "a").Frames; f.Missing != 57 || f.OK != 200 || f.Duplicate != 0 {
		t.Errorf("%+v; want 7 more missing in the same books", f)
	}
}

// A source that a reload has changed, and whose device is not there, says so: in its outage, and
// where the trouble is told. Once it has been open, the next outage has its own cause.
func TestOutageOfAChangedSourceNamesItsCause(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	defer stop(t, g)
	c := dial(t, address(g, "a"))
	defer c.Close()
	cause := func(want string) {
		t.Helper()
		testenv.Until(t, 20*time.Second, want, func() bool {
			s := g.Sheet()
			at := s.Ports[0].Outages
			return len(at) > 0 && at[len(at)-1].To == 0 && strings.HasPrefix(at[len(at)-1].Cause, want) &&
				why(&s, ledger.Reason{Kind: "not_there", Source: "a"}) == at[len(at)-1].Cause
		})
	}
	missing := filepath.Join(t.TempDir(), "tty")
	reloaded(t, g, config.Source{ID: "a", Serial: &config.Serial{Port: missing, Baud: 115200}, Frame: tcp("a").Frame})
	cause("the source was changed; then: open " + missing)
	reloaded(t, g, tcp("a"))
	cause("the source was changed; then: not connected")
	c = dial(t, address(g, "a"))
	write(t, c, frames(0, 1))
	stored(t, g, "a", 1)
	c.Close()
	cause("end of stream")
}

// A source that is changed under load loses no datagram: not by a change of its books, nor by one
// that needs another decoder.
func TestChangeUnderLoadLosesNoDatagram(t *testing.T) {
	dir := t.TempDir()
	addr := freeUDP(t)
	g := start(t, dir, nil, config.Source{ID: "u", UDP: &config.Net{Listen: addr}, Frame: config.Frame{Kind: "line"}})
	testenv.Until(t, 10*time.Second, "the socket is open",
		func() bool { return portOf(g, "u").State == ledger.StateOpen })
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	quit, sent := make(chan struct{}), make(chan uint64)
	go func() {
		n := uint64(0)
		for {
			select {
			case <-quit:
				sent <- n
				return
			default:
				if _, err := fmt.Fprintf(c, "datagram %d", n); err == nil {
					n++
				}
			}
		}
	}()
	for i := range 10 {
		stored(t, g, "u", 500)
		change(t, g, func(s *config.Source) { s.Frame.Max, s.Buffer = 1000+i, config.Size(128<<10+i) })
		stored(t, g, "u", 100)
		change(t, g, func(s *config.Source) { s.Overflow = []string{config.OverflowNewest, config.OverflowBlock}[i%2] })
	}
	close(quit)
	n := <-sent
	last := stop(t, g)
	var got, overrun, dropped uint64 // an overflow of drop-newest has its way on a slow disk
	sheets := past(t, dir)           // the last is that of the whole start
	for _, s := range append(sheets[:len(sheets)-1], archive.StartSheet{Sheet: last}) {
		for _, p := range s.Sheet.Ports {
			got += p.Frames.Stored
			overrun += *p.Kernel.BufferOverrun
			dropped += p.Frames.Dropped[causeNewest]
		}
	}
	if got+overrun+dropped != n {
		t.Errorf("%d datagrams sent, %d stored, %d over-ran, %d dropped, in %d sheets", n, got, overrun, dropped,
			len(sheets))
	}
}

// The sheet of a source that is gone is kept once the log has settled its frames, not with frames
// in flight for ever.
func TestRemovedSourceLeavesNothingInFlight(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil)
	l, log := testLane(t, config.OverflowBlock)
	log.seq = 1 << 40 // records that the log has not stored yet
	l.Arrived(frames(0, 3), 3*128, 1)
	p, _ := newRemotePort(l, nil, g.slog)
	g.mu.Lock()
	g.leaving = append(g.leaving, p)
	g.mu.Unlock()
	g.farewell(false)
	if all := past(t, dir); len(all) != 0 {
		t.Fatalf("a sheet is kept while frames are in flight: %+v", all)
	}
	g.commits.put(seglog.Commit{Stored: log.seq, Durable: log.seq})
	testenv.Until(t, 5*time.Second, "the sheet is kept", func() bool { return len(past(t, dir)) == 1 })
	if f := past(t, dir)[0].Sheet.Ports[0].Frames; f.Stored != 3 || f.InFlight != 0 {
		t.Errorf("the sheet: %+v; want 3 stored and none in flight", f)
	}
	g.commits.put(seglog.Commit{})
	stop(t, g)
}

// stalled starts a recorder with one source, of which the log has 10 frames, and cannot store so
// many more until release is called.
func stalled(t *testing.T, dir string, source config.Source, n uint64) (g *Recorder, release func()) {
	t.Helper()
	waits := &atomic.Bool{}
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return waitingDisk{fs, waits}, err
	}
	t.Cleanup(func() { openFiles = logFiles })
	g = start(t, dir, nil, source)
	feed(t, g, consecutive(0, 10)...)
	waits.Store(true)
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(10, n))
	testenv.Until(t, time.Minute, "they are booked", func() bool { return portOf(g, "a").Frames.OK == 10+n })
	return g, func() { openFiles = logFiles; waits.Store(false) }
}

// The account of a source that a reload takes out while the log is slow is kept, once the log has
// all of it.
func TestRemovedSourceIsInTheHistory(t *testing.T) {
	dir, a := t.TempDir(), tcp("a")
	a.Buffer = 4 << 20
	g, release := stalled(t, dir, a, 7000) // more than the log's own buffers hold
	reloaded(t, g)
	if all := past(t, dir); len(all) != 0 {
		t.Errorf("a sheet is kept while frames are in flight: %+v", all)
	}
	release()
	testenv.Until(t, time.Minute, "the sheet is kept", func() bool { return len(past(t, dir)) == 1 })
	if ports := past(t, dir)[0].Sheet.Ports; len(ports) != 1 || ports[0].ID != "a" || ports[0].Frames.Stored != 7010 ||
		ports[0].Frames.InFlight != 0 {
		t.Errorf("the sheet: %+v; want 7010 frames stored and none in flight", ports)
	}
	stop(t, g)
}

// A source that a reload changes while the log is slow has its records in their order, and loses
// none: what it reads then waits for what the log could not take before.
func TestChangeOnASlowLogKeepsTheOrder(t *testing.T) {
	a, moved := tcp("a"), tcp("a")
	a.Buffer, moved.TCP.Listen = 4<<20, "127.0.0.2:0"
	for name, to := range map[string][][]config.Source{
		"changed": {{moved}}, "changed twice": {{moved}, {a}}, "taken out, and in again": {nil, {a}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g, release := stalled(t, dir, a, 7000) // more than the log's own buffers hold
			old := g.snapshot()[0].lane
			for _, sources := range to {
				reloaded(t, g, sources...)
			}
			if old.isThrough() {
				t.Fatal("nothing waits for the log")
			}
			c := dial(t, address(g, "a"))
			defer c.Close()
			write(t, c, frames(7010, 100))
			testenv.Until(t, time.Minute, "they are booked", func() bool { return portOf(g, "a").Frames.OK == 100 })
			release()
			stored(t, g, "a", 100)
			log, next := g.log.NewReader(0), uint64(0)
			defer log.Close()
			for rec, err := log.Next(); err == nil; rec, err = log.Next() {
				h, _ := tally128.Parse(rec.Data)
				if h.Seq != next {
					t.Fatalf("record %d is frame %d, want %d", rec.Seq, h.Seq, next)
				}
				next++
			}
			if f := portOf(g, "a").Frames; next != 7110 || f.Missing+f.Duplicate > 0 {
				t.Errorf("%d records; %+v", next, f)
			}
			stop(t, g)
		})
	}
}

// What a kill takes of a source that is leaving is missing in the next start, though the lane that
// goes on with the source has nothing in flight.
func TestKillWhileASourceLeaves(t *testing.T) {
	moved, first := tcp("a"), tcp("a")
	moved.TCP.Listen, first.TCP.Peers = "127.0.0.2:0", config.PeersFirst
	for name, to := range map[string][][]config.Source{
		"changed": {{moved}}, "changed twice": {{moved}, {first}}, "taken out": {{tcp("b")}},
		"taken out, and in again": {nil, {first}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g, release := stalled(t, dir, tcp("a"), 10)
			for _, sources := range to {
				reloaded(t, g, sources...)
			}
			if err := g.save(); err != nil {
				t.Fatal(err)
			}
			killed := copyFolder(t, dir)
			release()
			stop(t, g)
			g = start(t, killed, nil, tcp("a"))
			feed(t, g, 20)
			if f := portOf(g, "a").Frames; f.Missing != 10 {
				t.Errorf("%+v; want 10 missing", f)
			}
			stop(t, g)
		})
	}
}

// A source that is to read all connections, after a time in which it read one of them, knows what
// the log has not stored of that time: none of it is missing to its peers.
func TestPeersBehindASlowLog(t *testing.T) {
	all := tcp("a")
	all.TCP.Peers = config.PeersAll
	g, release := stalled(t, t.TempDir(), tcp("a"), 10)
	reloaded(t, g, all)
	if g.snapshot()[0].lane.isSettled() {
		t.Fatal("nothing waits for the log")
	}
	c := dial(t, address(g, "a"))
	defer c.Close()
	write(t, c, frames(20, 5))
	release()
	testenv.Until(t, time.Minute, "it is read", func() bool { return portOf(g, "a/127.0.0.1").Frames.OK == 5 })
	if f := portOf(g, "a/127.0.0.1").Frames; f.Missing > 0 {
		t.Errorf("%+v; want none missing", f)
	}
	stop(t, g)
}

// One address that is taken holds nobody up: not the start, not a reload; the source comes when the
// address is free.
func TestTakenAddressIsTriedAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	blocked := tcp("blocked")
	blocked.TCP.Listen = taken.Addr().String()
	g := start(t, t.TempDir(), nil, blocked, tcp("free"))
	next := g.cfg
	taken2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken2.Close()
	again := tcp("again")
	again.TCP.Listen = taken2.Addr().String()
	next.Sources = []config.Source{g.cfg.Sources[0], again, g.cfg.Sources[1], tcp("more")}
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"free", "more"} {
		c := dial(t, address(g, id))
		write(t, c, frames(0, 3))
		stored(t, g, id, 3)
		c.Close()
	}
	testenv.Until(t, 5*time.Second, "the cause is in the books", func() bool {
		p := portOf(g, "blocked")
		return p.State == ledger.StateWaiting && len(p.Outages) == 1
	})
	taken.Close()
	testenv.Until(t, 20*time.Second, "the source has its address",
		func() bool { return address(g, "blocked") == blocked.TCP.Listen })
	stop(t, g)
}

func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	for name, edit := range map[string]func(*config.Config){
		"log has":           func(c *config.Config) { c.Log.Sync = "never" },
		"api has":           func(c *config.Config) { c.API.Listen = "off" },
		"server, read have": func(c *config.Config) { c.Server.Loops, c.Read.Strategy = 2, "polling" },
	} {
		next := g.cfg
		next.Sources = nil
		edit(&next)
		if err := g.Reload(next); err == nil ||
			!strings.HasPrefix(err.Error(), name+" changed: that needs a restart") {
			t.Errorf("a change of %s gives %v", name, err)
		}
		if len(g.Sheet().Ports) != 1 {
			t.Errorf("a change of %s has changed the sources", name)
		}
	}
	stop(t, g)
}

// The account of a source that was taken out is kept at once. Should the recorder be killed then,
// the next start keeps the sheet on disk, which must not have that account as well.
func TestAccountOfARemovedSourceIsKeptOnce(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("stays"), tcp("goes"))
	defer stop(t, g)
	c := dial(t, address(g, "goes"))
	defer c.Close()
	write(t, c, frames(0, 5))
	stored(t, g, "goes", 5)
	if err := g.save(); err != nil { // as it is done every second
		t.Fatal(err)
	}
	next := g.cfg
	next.Sources = g.cfg.Sources[:1]
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	times := 0
	sheets := past(t, dir)
	if s, _ := archive.LoadStart(dir, g.slog); s != nil { // what the next start would keep
		sheets = append(sheets, *s)
	}
	for _, s := range sheets {
		for _, p := range s.Sheet.Ports {
			if p.ID == "goes" && p.Frames.Stored == 5 {
				times++
			}
		}
	}
	if times != 1 {
		t.Errorf("the account is there %d times", times)
	}
}

// A frame of which one half came before a change, and the other behind it, is whole where the
// device and the framing stay.
func TestChangeKeepsHalfAFrame(t *testing.T) {
	for _, peers := range []string{config.PeersFirst, config.PeersAll} {
		for _, strategy := range strategies {
			for _, half := range []string{
				"a li", "a line\nand ha",
				strings.Repeat("longer than any line may be. ", 3),
			} {
				dir := t.TempDir()
				source := lines("a", peers)
				source.Frame.Max = 60
				g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy }, source)
				c := dial(t, address(g, "a"))
				defer c.Close()
				pending := uint64(len(half[strings.LastIndex(half, "\n")+1:]))
				if len(half) > 60 {
					pending = 0
				}
				await := func(what string, read, partial uint64) {
					t.Helper()
					testenv.Until(t, 20*time.Second, fmt.Sprintf("%s, %s, %q: %s", peers, strategy, half, what),
						func() bool {
							var b ledger.Bytes // of a source and its peer
							for _, p := range g.Sheet().Ports {
								b.Read, b.Partial = b.Read+p.Bytes.Read, b.Partial+p.Bytes.Partial
							}
							return b.Read == read && b.Partial == partial
						})
				}
				write(t, c, []byte(half))
				await("half a frame is read", uint64(len(half)), pending)
				for range 2 {
					change(t, g, func(s *config.Source) { s.Frame.Max++ })
					await("it is there again", pending, pending)
				}
				write(t, c, []byte("ne\nanother\n"))
				await("the other half is read", pending+uint64(len("ne\nanother\n")), 0)
				stop(t, g)
				var stored, corrupt, resync uint64
				for _, s := range past(t, dir) {
					for _, p := range s.Sheet.Ports {
						stored, corrupt, resync = stored+p.Frames.Stored, corrupt+p.Frames.Corrupt,
							resync+p.Bytes.Resync
						if len(p.Unbalanced) > 0 {
							t.Errorf("%s: %v", p.ID, p.Unbalanced)
						}
					}
				}
				want := uint64(2 + strings.Count(half, "\n"))
				if len(half) > 60 { // damaged, and once
					want--
					if corrupt != 1 || resync != uint64(len(half)+3) {
						t.Errorf("%s, %s, %q: %d damaged, %d bytes in no frame", peers, strategy, half, corrupt, resync)
					}
				} else if corrupt+resync > 0 {
					t.Errorf("%s, %s, %q: %d damaged, %d bytes in no frame", peers, strategy, half, corrupt, resync)
				}
				if stored != want {
					t.Errorf("%s, %s, %q: %d frames stored, want %d", peers, strategy, half, stored, want)
				}
			}
		}
	}
}

// What a source had lost stays listed when it is changed, and all of what it loses then is, too,
// however much of it the new books have read.
func TestLossesOfAChangedSource(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	defer stop(t, g)
	look := func() uint64 {
		if err := g.saveAnd(g.noteLosses); err != nil {
			t.Fatal(err)
		}
		all, _, err := g.Losses("a")
		if err != nil {
			t.Fatal(err)
		}
		var n uint64
		for _, l := range all {
			n += l.N
		}
		return n
	}
	feed(t, g, consecutive(0, 1)...)
	feed(t, g, consecutive(156, 1)...)
	if n := look(); n != 155 {
		t.Fatalf("%d are listed, want 155", n)
	}
	change(t, g, func(s *config.Source) { s.TCP.Listen = "127.0.0.2:0" })
	feed(t, g, append(consecutive(157, 40), consecutive(198, 100)...)...)
	if n := look(); n != 156 {
		t.Errorf("%d are listed, want 156", n)
	}
}

// What a source loses right before a reload takes it out or changes it is listed, and told.
func TestLossBeforeAReload(t *testing.T) {
	for name, edit := range map[string]func(*config.Config){
		"taken out": func(c *config.Config) { c.Sources = nil },
		"changed": func(c *config.Config) {
			s := tcp("a")
			s.TCP.Listen = "127.0.0.2:0"
			c.Sources = []config.Source{s}
		},
	} {
		g := start(t, t.TempDir(), nil, tcp("a"))
		feed(t, g, 0, 156)
		next := g.cfg
		edit(&next)
		if err := g.Reload(next); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, name+": the source has left", func() bool { return len(g.departing()) == 0 })
		var told []archive.Trouble
		err := g.saveAnd(func(s *archive.StartSheet) {
			g.noteLosses(s)
			g.proclaim(s, false)
			told = s.Troubles
		})
		all, _, listErr := g.Losses("a")
		if err != nil || listErr != nil || len(all) != 1 || all[0].N != 155 {
			t.Errorf("%s: %+v, %v, %v; want 155 frames", name, all, err, listErr)
		}
		if !slices.ContainsFunc(told, func(w archive.Trouble) bool { return w.Source == "a" && w.Count == 155 }) {
			t.Errorf("%s: %+v; want 155 frames of a", name, told)
		}
		stop(t, g)
	}
}

// A source whose frames have no numbers is taken out, and comes back after other starts: that
// nobody read it meanwhile is an outage.
func TestSourceThatComesBackStartsLater(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, lines("a", ""), lines("b", ""))
	next := g.cfg
	next.Sources = next.Sources[1:]
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		stop(t, g)
		g = start(t, dir, nil, lines("b", ""))
	}
	next = g.cfg
	next.Sources = append(slices.Clone(next.Sources), lines("a", ""))
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	if p := portOf(g, "a"); p.OutageCount != 1 ||
		!strings.HasPrefix(p.Outages[0].Cause, outageTakenOut+outageThen+outageNotRunning) {
		t.Errorf("%+v; want an outage since it was taken out", p.Outages)
	}
	stop(t, g)
}
