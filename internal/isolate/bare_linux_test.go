package isolate

import (
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
)

// hasty is a link whose ends wait for descriptors for a moment only.
func hasty(t *testing.T) (keeper, child *ipc.Conn) {
	t.Helper()
	cfg := linkConfig
	cfg.Patience = 50 * time.Millisecond
	keeper, theirs, err := ipc.Pair(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if child, err = ipc.Inherit(theirs, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = keeper.Close(), child.Close() })
	return keeper, child
}

// An entry that comes while the process may open no more is no end of the keeper: it comes once
// there are descriptors, and without them if there are none for long.
func TestEntriesWithoutDescriptors(t *testing.T) {
	file, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(file) }()
	for _, long := range []bool{false, true} {
		ours, theirs := linkPair(t)
		if long {
			ours, theirs = hasty(t)
		}
		for _, name := range []string{"next/x", "lane/x", "port/x"} {
			if err := send(ours, message{Op: opPut, Name: name}, []int{file}); err != nil {
				t.Fatal(err)
			}
		}
		if err := send(ours, message{Op: opYield}, nil); err != nil {
			t.Fatal(err)
		}
		restore := testenv.WithoutDescriptors(t)
		restored := make(chan struct{})
		if !long {
			time.AfterFunc(50*time.Millisecond, func() { defer close(restored); restore() })
		}
		var all []Entry
		yields, err := newLink(theirs).Follow(func(e Entry) error { all = append(all, e); return nil },
			func([]Process) {})
		if long {
			restore()
		} else {
			<-restored
		}
		if !yields || err != nil || len(all) != 3 {
			t.Fatalf("long %v: the keeper has ended: %v, %v, with %+v", long, !yields, err, all)
		}
		for _, e := range all {
			if e.Bare != long || (len(e.FDs) == 0) != (long || e.Name == "port/x") { // who follows needs no port
				t.Errorf("long %v: %+v", long, e)
			}
			e.CloseFDs()
		}
		_, _ = ours.Close(), theirs.Close()
	}
}

// A reader ends where it lacks what it is to read, so that the next one finds it on the shelf. Of
// what it has already it needs no other descriptor.
func TestReaderThatLacksDescriptors(t *testing.T) {
	r := &ports{log: slog.New(slog.DiscardHandler), lines: map[string]*line{"has": {}}, ends: map[string]*line{}}
	for _, c := range []struct {
		e    Entry
		ends bool
	}{
		{Entry{Name: "lane/has", Bare: true, Data: []byte("{}")}, false},
		{Entry{Name: "lane/new", Bare: true, Data: []byte("{}")}, true},
		{Entry{Name: "next/has", Bare: true}, true},
		{Entry{Name: "next/gone", Bare: true}, false},
		{Entry{Name: "port/has", Bare: true}, false},
		{Entry{Name: BellEntry, Bare: true}, true},
	} {
		if err := r.entry(c.e); errors.Is(err, errBare) != c.ends {
			t.Errorf("%s: %v, want an end: %v", c.e.Name, err, c.ends)
		}
	}
}

// An answer that came without its connection, which is on the shelf, is asked for again though
// nobody else waits at the listener.
func TestAcceptedWithoutDescriptors(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	l, end := st.reader(Lane{Kind: First, Port: addr})
	w := l.wire.(*listening)
	if err := w.listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.acceptor.Leave()
	st.call(addr, "one")
	if err := w.acceptor.Link.Accept("x", "next/x"); err != nil {
		t.Fatal(err)
	}
	e := <-w.acceptor.answers
	e.CloseFDs()
	e.FDs, e.Bare = nil, true
	w.acceptor.asked = true
	w.acceptor.answers <- e
	if a, err := w.acceptor.ask(t.Context()); err == nil || a.FD >= 0 {
		t.Fatalf("an answer without its connection: %+v, %v", a, err)
	}
	w.acceptor.begin(w.acceptor.socket, false)
	st.brings(st.open(l), "one")
	end()
}

// The keeper has what a child has put while it could open no more for a moment. Where that lasts it
// ends the child, which it would not hear any more, and says so; of a recorder that stops it takes
// what is left.
func TestKeeperWithoutDescriptors(t *testing.T) {
	file, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(file) }()
	for _, c := range []struct {
		name        string
		long, stops bool
		want        string // on the shelf
		kills       bool
		says        string
	}{
		{name: "a moment", want: "lane/x=1 port/x=2 lane/x=3 end=4"},
		{name: "long", long: true, want: "lane/x=1", kills: true, says: "port/x"},
		{name: "long, at a stop", long: true, stops: true, want: "lane/x=3 end=4", says: "does not have it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sleeps := exec.Command("sleep", "600")
			if err := sleeps.Start(); err != nil {
				t.Skipf("SKIPPED: no process to be ended: %v; install sleep", err)
			}
			ended := make(chan error, 1)
			go func() { ended <- sleeps.Wait() }()
			defer func() { _ = sleeps.Process.Kill() }()
			ours, theirs := linkPair(t)
			if c.long {
				ours, theirs = hasty(t)
			}
			var journal syncBuffer
			k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(&journal, nil))})
			k.stopping = c.stops
			recorder := &child{
				Process: Process{Role: Recorder}, process: sleeps.Process, conn: ours, heard: make(chan struct{}),
			}
			k.children[Recorder] = recorder
			shelved, err := sys.Dup(file)
			if err != nil {
				t.Fatal(err)
			}
			k.place(message{Op: opPut, Name: "lane/x", Data: []byte("1")}, []int{shelved})
			link := newLink(theirs)
			for _, put := range []struct {
				name string
				data int
				fds  []int
			}{{"port/x", 2, []int{file}}, {"lane/x", 3, []int{file}}, {EndEntry, 4, nil}} {
				if err := link.Put(put.name, put.data, put.fds...); err != nil {
					t.Fatal(err)
				}
			}
			_ = theirs.Close()
			restore := testenv.WithoutDescriptors(t)
			if !c.long {
				time.AfterFunc(50*time.Millisecond, restore)
			}
			k.listen(recorder, ours)
			if c.long {
				restore()
			}
			got := map[string]string{}
			for _, e := range k.shelf {
				if got[e.name] = string(e.data); len(e.fds) == 0 && e.name != EndEntry {
					t.Errorf("%s has no descriptor", e.name)
				}
				Entry{FDs: e.fds}.CloseFDs()
			}
			want := map[string]string{}
			for _, one := range strings.Fields(c.want) {
				name, data, _ := strings.Cut(one, "=")
				want[name] = data
			}
			for name := range want {
				if got[name] != want[name] || len(got) != len(want) {
					t.Errorf("on the shelf is %v, want %v", got, want)
				}
			}
			if c.kills {
				if err := <-ended; err == nil {
					t.Error("the process has ended by itself")
				}
			} else if sleeps.Process.Signal(syscall.Signal(0)) != nil {
				t.Error("the process was killed")
			}
			if text := journal.String(); !strings.Contains(text, c.says) || c.says == "" && text != "" {
				t.Errorf("the journal: %q, want it to name %q", text, c.says)
			}
		})
	}
}

// What cannot be read is no word of a child of ours: it is ended, as a keeper would not hear it any
// more.
func TestKeeperThatCannotHear(t *testing.T) {
	sleeps := exec.Command("sleep", "600")
	if err := sleeps.Start(); err != nil {
		t.Skipf("SKIPPED: no process to be ended: %v; install sleep", err)
	}
	ours, theirs := linkPair(t)
	defer theirs.Close()
	defer ours.Close()
	if err := theirs.Send(ipc.Message{Data: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	k := newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	c := &child{Process: Process{Role: Reader}, process: sleeps.Process, conn: ours, heard: make(chan struct{})}
	k.listen(c, ours)
	var exit *exec.ExitError
	if err := sleeps.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Errorf("the process has ended: %v", err)
	}
}

// syncBuffer is a text that one goroutine writes, and another reads.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// The keeper says a name once it has done what was put and dropped before.
func TestKeeperEchoes(t *testing.T) {
	ours, theirs := linkPair(t)
	k := newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	c := &child{Process: Process{Role: Recorder}, conn: ours, heard: make(chan struct{})}
	go k.listen(c, ours)
	link := newLink(theirs)
	if err := errors.Join(link.Put("a", 1), link.Put("b", 2), link.Drop("a"), link.Echo("7")); err != nil {
		t.Fatal(err)
	}
	e := errors.New("heard")
	_, err := link.Follow(func(got Entry) error {
		if got.Name != "7" || !got.Echo || k.has("a") || !k.has("b") {
			t.Errorf("the keeper says %+v, with %v", got, k.shelf)
		}
		return e
	}, func([]Process) {})
	if !errors.Is(err, e) {
		t.Error(err)
	}
	_ = theirs.Close()
	<-c.heard
	_ = ours.Close()
}

// The keeper counts what waits of a source that its reader does not read: in its device, and in
// connections that nobody has taken.
func TestKeeperCountsWhatWaits(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	l, end := st.reader(Lane{Kind: First, Port: addr})
	if err := l.wire.(*listening).listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.call(addr, "one")
	st.has("listener/x", "next/x")
	d, err := l.open() // whose bytes nobody reads
	if err != nil {
		t.Fatal(err)
	}
	st.call(addr, "and two")
	st.has("listener/x", "next/x", "port/x")
	st.call(addr, "and number three")
	end()
	const want = uint64(len("one" + "and two" + "and number three"))
	testenv.Until(t, time.Minute, "all that was sent has arrived", func() bool {
		n := sockets.Waiting(st.k.entry("port/x").fds[0]) + sockets.Waiting(st.k.entry("next/x").fds[0])
		return n == uint64(len("one"+"and two")) && sys.Backlogged(st.k.entry("listener/x").fds[0]) == 1
	})
	if n := st.k.waits("x"); n != want {
		t.Errorf("%d bytes, %d were sent", n, want)
	}
	_ = d.Close()

	fd, name, err := sockets.ListenDatagrams("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	st.k.place(message{Op: opPut, Name: "lane/u", Data: []byte(`{"Kind":"udp"}`)}, nil)
	st.k.place(message{Op: opPut, Name: "port/u"}, []int{fd})
	c, err := net.Dial("udp", name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range []string{"one", "and two"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if n := st.k.waits("u"); n != uint64(len("one"+"and two")) {
		t.Errorf("%d bytes of datagrams", n)
	}
	if n := st.k.waits("nobody"); n != 0 {
		t.Errorf("%d bytes of a source that is not there", n)
	}
}
