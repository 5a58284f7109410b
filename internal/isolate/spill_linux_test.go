package isolate

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// descriptors is how many an entry on the shelf has.
func (st *stage) descriptors(name string) (n int) {
	st.k.mu.Lock()
	defer st.k.mu.Unlock()
	for _, e := range st.k.shelf {
		if e.name == name {
			n = len(e.fds)
		}
	}
	return n
}

// TestRunoverIsHandedOn writes more marks than both spools hold while nobody records, and has
// another reader go on with the file, and then with the near spool alone: all come, in order.
func TestRunoverIsHandedOn(t *testing.T) {
	st := newStage(t)
	lane := Lane{Kind: Serial, Spill: &Spill{Dir: t.TempDir(), Max: 16 << 20}}
	const each = 20_000
	wrote := uint64(0)
	write := func(l *line) {
		for range each {
			l.note(spool.Mark{Kind: spool.Silent, B: wrote})
			wrote++
		}
	}
	l, end := st.reader(lane)
	l.over.begin()
	st.has("spill/x")
	write(l)
	l.over.close()
	end()
	if n := st.descriptors("spill/x"); n != 2 {
		t.Fatalf("the shelf has %d descriptors of what has run over: want the near spool, and the file", n)
	}

	l, end = st.reader(lane)
	l.over.begin()
	write(l)
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	consume := func() {
		testenv.Until(t, time.Minute, "all marks come", func() bool {
			for {
				m, _, ok, err := c.Next()
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Save(spool.Checkpoint{Point: c.Point()}); err != nil {
					t.Fatal(err)
				}
				if !ok {
					return next == wrote
				}
				if m.B != next {
					t.Fatalf("mark %d comes where %d is due", m.B, next)
				}
				next++
			}
		})
	}
	consume()
	l.over.await() // there is nothing more
	l.over.close()
	end()
	testenv.Until(t, time.Minute, "the file is given back", func() bool { return st.descriptors("spill/x") == 1 })

	l, end = st.reader(lane)
	l.over.begin()
	l.note(spool.Mark{Kind: spool.Silent, B: wrote})
	wrote++
	consume()
	l.over.close()
	end()
}

// TestRunoverLeavesFree has the configuration ask for less of the disk to stay free, while a file
// takes nothing for that: the line that is there heeds it.
func TestRunoverLeavesFree(t *testing.T) {
	st := newStage(t)
	lane := Lane{Kind: Serial, Spill: &Spill{Dir: t.TempDir(), Max: 16 << 20, Reserve: 1 << 60}}
	l, end := st.reader(lane)
	defer end()
	defer l.over.close()
	l.over.begin()
	testenv.Until(t, time.Minute, "the one that is recorded is full, and the file takes nothing", func() bool {
		l.mu.Lock()
		for l.producer.Note(spool.Mark{Kind: spool.Silent}) == nil {
		}
		l.mu.Unlock()
		l.over.move()
		return l.over.cause() == spool.SpillFull
	})
	lane.Spill.Reserve = 0
	data, err := json.Marshal(lane)
	if err != nil {
		t.Fatal(err)
	}
	r := &ports{lines: map[string]*line{"x": l}}
	if err := r.take(Entry{Name: LaneOf("x"), Data: data}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "the file takes what waits", func() bool { return l.over.cause() == 0 })
}

// TestRunoverOfAnother finds a near spool that was before another one: it begins with a new one.
func TestRunoverOfAnother(t *testing.T) {
	st := newStage(t)
	lane := Lane{Kind: Serial, Spill: &Spill{Dir: t.TempDir(), Max: 16 << 20}}
	l, end := st.reader(lane)
	l.over.begin()
	l.note(spool.Mark{Kind: spool.Silent})
	l.over.close()
	end()
	other := newStage(t)
	st.spool, other.spool = other.spool, st.spool
	l, end = st.reader(lane)
	l.over.begin()
	l.note(spool.Mark{Kind: spool.Silent, B: 7})
	l.over.close()
	end()
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	if m, _, ok, err := c.Next(); m.B != 7 || !ok || err != nil {
		t.Errorf("what comes first is %+v, %v, %v", m, ok, err)
	}
}

// TestEndBehindAFullFile ends a line whose file is full, while nobody records: that it has ended,
// and how much nobody reads, is on the shelf; when it did not read before is noted where the
// recorder looks, though the file holds all marks back.
func TestEndBehindAFullFile(t *testing.T) {
	st := newStage(t)
	lane := Lane{Kind: Given, Book: 7, Spill: &Spill{Dir: t.TempDir(), Max: 1}}
	l, end := st.reader(lane)
	l.over.begin()
	testenv.Until(t, time.Minute, "the one that is recorded is full, and the file", func() bool {
		l.mu.Lock()
		for l.producer.Note(spool.Mark{Kind: spool.Silent}) == nil {
		}
		l.mu.Unlock()
		l.over.move()
		return l.over.cause() != 0
	})
	since := time.Now().Add(-time.Hour)
	l.mu.Lock()
	l.stuck, l.why = since, spool.SpillFull
	l.far.Block(since.UnixNano(), l.why)
	l.mu.Unlock()
	l.unblock()
	l.lost = 300
	l.giveUp, l.orphaned = time.Now(), true // it does not wait for the recorder
	l.stop()
	l.run(adoption{fd: -1, next: -1, listener: -1})
	end()
	says := func(who string, lost uint64) {
		t.Helper()
		var p Port
		st.k.mu.Lock()
		defer st.k.mu.Unlock()
		if err := json.Unmarshal(st.k.entry(PortOf("x")).data, &p); err != nil || p.Ended != 7 || p.Lost != lost {
			t.Errorf("behind %s the shelf has %+v, %v; want %d bytes lost", who, p, err, lost)
		}
	}
	says("the reader", 300)
	if all, _ := st.spool.Unread(0); len(all) != 1 || all[0].From != since.UnixNano() || all[0].To == 0 ||
		all[0].Why != spool.SpillFull {
		t.Errorf("of times without room it says %+v", all)
	}

	// the reader is killed, and the next one comes to the end, too
	next := func() (l *line, before adoption, end func()) {
		l, before, end = st.successor(lane)
		l.giveUp, l.orphaned = time.Now(), true
		l.stop()
		return l, before, end
	}
	l, before, end := next()
	l.run(before)
	end()
	says("the one that comes after a kill", 300)

	// that one is killed, too, when it has counted a connection, and has come to no end
	l, before, end = next()
	l.inherit(before)
	l.loses(50)
	l.over.close()
	end()
	l, before, end = next()
	l.run(before)
	end()
	says("a kill before the end", 350)
}

// TestReaderPassesOnBeforeItLeaves tells a reader that all end, while a mark waits in front of a
// spool that is full, and nothing is in a file: it goes on until that has come into the spool.
func TestReaderPassesOnBeforeItLeaves(t *testing.T) {
	st := newStage(t)
	l, end := st.reader(Lane{Kind: Serial, Spill: &Spill{Dir: t.TempDir(), Max: 16 << 20}})
	defer end()
	defer l.over.close()
	l.over.begin()
	wrote := uint64(0)
	for ; !l.over.holds(); wrote++ {
		l.note(spool.Mark{Kind: spool.Silent, B: wrote})
	}
	said := make(chan struct{}, 1)
	ours, theirs := linkPair(t)
	r := &ports{link: newLink(theirs), lines: map[string]*line{"x": l}, log: slog.New(slog.NewTextHandler(
		telling(said), nil))}
	if err := send(ours, message{Op: opLeave}, nil); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		yields, err := r.follow()
		if !yields {
			err = errors.Join(err, errors.New("the keeper has ended"))
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the reader ends while something waits: %v", err)
	case <-said:
	}
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	came := uint64(0)
	testenv.Until(t, time.Minute, "all marks come", func() bool {
		for {
			m, _, ok, err := c.Next()
			if err = errors.Join(err, c.Save(spool.Checkpoint{Point: c.Point()})); err != nil {
				t.Fatal(err)
			}
			if !ok {
				return came == wrote
			}
			if m.B != came {
				t.Fatalf("mark %d comes where %d is due", m.B, came)
			}
			came++
		}
	})
	if err := <-ended; err != nil || l.over.holds() {
		t.Errorf("the reader ends by %v, and something waits: %v", err, l.over.holds())
	}
	_, _ = ours.Close(), theirs.Close()
}

// telling is told of what a journal writes.
type telling chan<- struct{}

func (t telling) Write(b []byte) (int, error) {
	select {
	case t <- struct{}{}:
	default:
	}
	return len(b), nil
}

// TestKeeperSaysWhatTheReaderLeaves: of a connection that the reader has left, the recorder hears
// how much nobody has read, and of a port nothing, for that may keep it for whoever comes.
func TestKeeperSaysWhatTheReaderLeaves(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	l, end := st.reader(Lane{Kind: First, Port: addr})
	defer end()
	w := l.wire.(*listening)
	if err := w.listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.call(addr, "three")
	d := st.open(l)
	if err := l.keep(d); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[Kind]uint64{First: 5, Serial: 0} {
		data, err := json.Marshal(Lane{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, "what waits is seen", func() bool {
			st.k.mu.Lock()
			defer st.k.mu.Unlock()
			st.k.place(message{Op: opPut, Name: LaneOf("x"), Data: data}, nil)
			st.k.leaving = time.Now().Add(-time.Second)
			left := st.k.left()
			return left.Unread["x"] == want && left.Waited >= time.Second && len(left.Unread) <= 1
		})
	}
}
