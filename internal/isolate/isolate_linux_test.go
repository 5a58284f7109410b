package isolate

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// linkPair is a link, from both sides.
func linkPair(t *testing.T) (keeper, child *ipc.Conn) {
	t.Helper()
	keeper, theirs, err := ipc.Pair(linkConfig)
	if err != nil {
		t.Fatal(err)
	}
	if child, err = ipc.Inherit(theirs, linkConfig); err != nil {
		t.Fatal(err)
	}
	return keeper, child
}

// TestPace starts at once what did its work, and waits for what does not get so far, or crashes
// again and again.
func TestPace(t *testing.T) {
	now := time.Unix(1e9, 0)
	var p pace
	for range crashes - 1 {
		if d := p.next(now, true); d != 0 {
			t.Fatalf("it waits for %v", d)
		}
	}
	if d := p.next(now, true); d != firstWait {
		t.Errorf("behind %d crashes at once it waits for %v, want %v", crashes, d, firstWait)
	}
	if d := p.next(now.Add(2*crashTime), true); d != 0 {
		t.Errorf("after a while it waits for %v", d)
	}
	var q pace
	var waits []time.Duration
	for range 9 {
		waits = append(waits, q.next(now, false))
	}
	if !slices.IsSorted(waits) || waits[0] != firstWait || waits[8] != longWait {
		t.Errorf("what is never ready waits for %v", waits)
	}
}

// TestEndsAreTold: the journal is told of one end, and then each minute how many there were.
func TestEndsAreTold(t *testing.T) {
	var said strings.Builder
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(&said, nil))})
	next := stoppedTimer()
	e, now := k.ends[Recorder], time.Unix(1e9, 0)
	for n := range 100 {
		if e.isTold(now) != (n == 0) {
			t.Errorf("end %d is told: %v", n, n != 0)
		}
		now = now.Add(100 * time.Millisecond)
		k.tellMore(now, next)
	}
	if !next.Stop() || said.Len() > 0 {
		t.Errorf("within a minute it says %q, or nobody waits for the end of that", said.String())
	}
	k.tellMore(now.Add(tellEach), next)
	if !strings.Contains(said.String(), "times=99") || strings.Count(said.String(), "\n") != 1 || next.Stop() {
		t.Errorf("behind a minute it says %q", said.String())
	}
	if e.isTold(now.Add(tellEach)) || !e.isTold(now.Add(3*tellEach)) {
		t.Error("what comes right behind that is told, or what comes later is not")
	}
}

// TestIsOver says when the end of a recorder is that of all.
func TestIsOver(t *testing.T) {
	for _, c := range []struct {
		name             string
		end, begun, over bool
		stops            bool
		code             int // negative: it was killed
	}{
		{name: "stopped", begun: true, over: true},
		{name: "could not begin", code: 2, over: true},
		{name: "killed before it had begun", code: -1},
		{name: "killed", begun: true, code: -1},
		{name: "the log has failed", begun: true, code: 1},
		{name: "asked to stop, with an error", begun: true, stops: true, code: 1, over: true},
		{name: "killed while it stops", begun: true, stops: true, code: -1},
		{name: "killed behind its end", begun: true, stops: true, end: true, code: -1, over: true},
	} {
		k := &keeper{Keeping: Keeping{Log: slog.New(slog.DiscardHandler)}, stopping: c.stops}
		if c.end {
			k.place(message{Op: opPut, Name: EndEntry}, nil)
		}
		tries := 0
		if _, over := k.isOverBy(c.code, c.code < 0, "", c.begun, &tries); over != c.over {
			t.Errorf("%s: over is %v", c.name, over)
		}
	}
	k := &keeper{Keeping: Keeping{Log: slog.New(slog.DiscardHandler)}, stopping: true}
	tries, n := 0, 1
	for ; n < 10; n++ {
		if _, over := k.isOverBy(-1, true, "", true, &tries); over {
			break
		}
	}
	if n != stopTries+1 {
		t.Errorf("a recorder that crashes while it stops is given up at crash %d", n)
	}
}

// TestBeginningInAStop: a recorder that begins while the keeper stops is told that it is to stop,
// unless another process goes on with what is on the shelf.
func TestBeginningInAStop(t *testing.T) {
	for _, c := range []struct{ stopping, leaves, stops bool }{
		{}, {stopping: true, stops: true}, {stopping: true, leaves: true},
	} {
		k := newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
		k.stopping, k.leaves = c.stopping, c.leaves
		if b := k.beginning(Recorder, false); b.Stops != c.stops {
			t.Errorf("%+v: a recorder begins with %+v", c, b)
		}
		if k.beginning(Reader, false).Stops {
			t.Errorf("%+v: a reader is to stop, which the end of its link tells it", c)
		}
		ours, theirs := linkPair(t)
		defer ours.Close()
		defer theirs.Close()
		if err := send(ours, message{Op: opPrepare, Data: k.beginning(Recorder, false).encode()}, nil); err != nil {
			t.Fatal(err)
		}
		link := newLink(theirs)
		if _, _, err := link.Prepare(); err != nil || link.Stops() != c.stops {
			t.Errorf("%+v: the recorder hears that it is to stop: %v, %v", c, link.Stops(), err)
		}
	}
}

// TestShelf puts, replaces and drops entries, and counts descriptors: none is left behind.
func TestShelf(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("SKIPPED: %v; mount /proc", err)
		}
		return len(all)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	k := &keeper{Keeping: Keeping{Log: slog.New(slog.DiscardHandler)}, children: map[Role]*child{}}
	before := open()
	ours, conn := linkPair(t)
	c := &child{Process: Process{Role: Recorder}, conn: ours, heard: make(chan struct{})}
	go k.listen(c, ours)
	link := newLink(conn)
	fd, err := sys.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "a", "c"} {
		if err := link.Put(name, name, fd); err != nil {
			t.Fatal(err)
		}
	}
	if err := link.Drop("b"); err != nil {
		t.Fatal(err)
	}
	_ = sys.CloseFD(fd)
	_ = conn.Close() // what was put before counts
	<-c.heard
	var names []string
	for _, e := range k.shelf {
		names = append(names, e.name)
		Entry{FDs: e.fds}.CloseFDs()
	}
	if !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("on the shelf: %q", names)
	}
	_ = ours.Close()
	if n := open(); n != before {
		t.Errorf("%d descriptors are open, %d were before", n, before)
	}
}

// TestChildIsHeardOut has a child end whose keeper is slow to listen, and whose end of the link
// somebody else has: all that it had put counts.
func TestChildIsHeardOut(t *testing.T) {
	k := &keeper{Keeping: Keeping{Log: slog.New(slog.DiscardHandler)}, children: map[Role]*child{}}
	ours, conn := linkPair(t)
	defer func() { _ = conn.Close() }()
	c := &child{Process: Process{Role: Recorder}, conn: ours, heard: make(chan struct{})}
	k.mu.Lock() // it does not get to what is said
	go k.listen(c, ours)
	link, names := newLink(conn), []string{"a", "b", "c", "d"}
	for _, name := range names {
		if err := link.Put(name, name); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.hearOut(ours, 0)
		_ = ours.Close()
	}()
	for link.Put("late", 0) == nil { // until the link is closed for more
		runtime.Gosched()
	}
	k.mu.Unlock()
	<-over
	<-c.heard
	var got []string
	for _, e := range k.shelf {
		if e.name != "late" {
			got = append(got, e.name)
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("on the shelf: %q", got)
	}
}

// TestBell wakes who sleeps, keeps nobody asleep who finds something, and a P for short only.
func TestBell(t *testing.T) {
	b, err := NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	for _, keep := range []bool{false, true} {
		if !b.Sleep(keep, func() bool { return true }) {
			t.Errorf("keep %v: it says that nothing was found", keep)
		}
		began := time.Now()
		rung := b.Sleep(keep, func() bool { b.Ring(); return false }) // what came between the look and the sleep
		if d := time.Since(began); d > longestSleep/2 || !rung {
			t.Errorf("keep %v: it slept for %v and says %v though it was rung", keep, d, rung)
		}
		if b.Sleep(keep, func() bool { return false }) {
			t.Errorf("keep %v: it says that it was rung", keep)
		}
	}
}

// TestDoze goes on through what can wait, ends by what cannot, and begins only where look lets it.
func TestDoze(t *testing.T) {
	b, err := NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	stay := func() bool { return false }
	b.Doze(func() bool {
		b.Tell()
		if b.word.Load() != dozing {
			t.Error("what can wait ends it")
		}
		b.Ring()
		if b.word.Load() == dozing {
			t.Error("what is urgent does not end it")
		}
		return false
	})
	b.Doze(stay) // it ends by itself
	if b.word.Load() != 0 {
		t.Error("who is awake is still said to doze")
	}
	if !b.Sleep(true, func() bool { b.Tell(); return false }) {
		t.Error("what can wait does not wake who sleeps")
	}
}

// TestMomentsOfTwoClocks holds the steady clock of this process to that of the machine.
func TestMomentsOfTwoClocks(t *testing.T) {
	before, steady, after := sys.Monotonic(), spool.Steady(), sys.Monotonic()
	if steady < before-time.Millisecond || steady > after+time.Millisecond {
		t.Errorf("%v, between %v and %v", steady, before, after)
	}
}

// TestKeeperEndsAtOnce ends the keeper while the reader begins, as where the recorder has refused
// to start and said why: that is no error of the reader.
func TestKeeperEndsAtOnce(t *testing.T) {
	for _, told := range []bool{false, true} {
		ours, conn := linkPair(t)
		if told {
			if err := send(ours, message{Op: opPrepare, Data: Beginning{}.encode()}, nil); err != nil {
				t.Fatal(err)
			}
		}
		_ = ours.Close()
		if err := ReadPorts(newLink(conn), slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("told: %v: %v", told, err)
		}
		_ = conn.Close()
	}
}
