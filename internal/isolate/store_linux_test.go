package isolate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// fakeStore is systemd, as far as it keeps descriptors: sd_pid_notify_with_fds(3).
type fakeStore struct {
	t    *testing.T
	conn *net.UnixConn
	room int // FileDescriptorStoreMax

	mu   sync.Mutex
	kept []fakeKept // in the order of their coming
	said []string
}

type fakeKept struct {
	name string
	fd   int
}

func newFakeStore(t *testing.T, room int) *fakeStore {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeStore{t: t, conn: conn, room: room}
	over := make(chan struct{})
	go func() { defer close(over); f.run() }()
	t.Cleanup(func() {
		_ = conn.Close()
		<-over
		for _, k := range f.kept {
			_ = sys.CloseFD(k.fd)
		}
	})
	t.Setenv("NOTIFY_SOCKET", path)
	return f
}

func (f *fakeStore) run() {
	b, oob := make([]byte, 4096), make([]byte, 4096)
	for {
		n, m, _, _, err := f.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		var fds []int
		if all, err := syscall.ParseSocketControlMessage(oob[:m]); err == nil && len(all) > 0 {
			fds, _ = syscall.ParseUnixRights(&all[0])
		}
		f.hear(string(b[:n]), fds)
	}
}

func (f *fakeStore) hear(text string, fds []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, text)
	has := func(line string) bool { return slices.Contains(strings.Split(text, "\n"), line) }
	var name string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "FDNAME="); ok {
			name = rest
		}
	}
	switch {
	case has("FDSTORE=1"):
		isThere := slices.ContainsFunc(f.kept, func(k fakeKept) bool {
			a, errA := sys.FileOf(k.fd)
			b, errB := sys.FileOf(fds[0])
			return errors.Join(errA, errB) == nil && a == b && sys.SameOpen(k.fd, fds[0])
		})
		if !has("FDPOLL=0") || strings.ContainsAny(name, ":\x00") || len(name) > 255 {
			f.t.Errorf("systemd would drop %q", text)
		}
		if !isThere && len(f.kept) < f.room {
			f.kept = append(f.kept, fakeKept{name, fds[0]})
			fds = nil
		}
	case has("FDSTOREREMOVE=1"):
		f.kept = slices.DeleteFunc(f.kept, func(k fakeKept) bool {
			if k.name == name {
				_ = sys.CloseFD(k.fd)
			}
			return k.name == name
		})
	}
	Entry{FDs: fds}.CloseFDs() // also of BARRIER
}

func (f *fakeStore) names() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kept {
		if k.name != roomName { // the goroutine of a keeper that this test calls dead may be at that
			all = append(all, k.name)
		}
	}
	return all
}

// next is what the next process finds that systemd starts.
func (f *fakeStore) next() *left {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &left{fds: map[string]int{}}
	for _, k := range f.kept {
		fd, err := sys.Dup(k.fd)
		if err != nil {
			f.t.Fatal(err)
		}
		l.fds[k.name] = fd
	}
	return l
}

// storing is a keeper that has a store, without children. end is its death.
func storing(t *testing.T) (k *keeper, end func()) {
	t.Helper()
	k = newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	k.beginStore()
	testenv.Until(t, time.Minute, "the store is there", func() bool { return k.has(StoreEntry) })
	return k, func() { endStoring(k) }
}

func endStoring(k *keeper) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.shelf {
		Entry{FDs: e.fds}.CloseFDs()
	}
	k.shelf = nil
	if k.store != nil {
		_ = k.store.state.Close()
		k.store = nil
	}
}

func (k *keeper) says(op, name, data string, fds ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.place(message{Op: op, Name: name, Data: json.RawMessage(data)}, fds)
}

// pipeEnds makes pipes, and returns the reading ends.
func pipeEnds(t *testing.T, n int) (fds []int) {
	t.Helper()
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := sys.Dup(int(r.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		t.Cleanup(func() { _ = w.Close() })
		fds = append(fds, fd)
	}
	return fds
}

func fileOf(t *testing.T, fd int) sys.FileID {
	t.Helper()
	id, err := sys.FileOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestStoreOutlivesTheKeeper: what is on the shelf is on that of the next keeper, also where a
// descriptor has gone from one entry to another, and where the file of records was renewed.
func TestStoreOutlivesTheKeeper(t *testing.T) {
	f := newFakeStore(t, 100)
	k, end := storing(t)
	fds := pipeEnds(t, 5)
	want := map[string][]sys.FileID{
		"lane/a": {fileOf(t, fds[0])}, "port/a": {fileOf(t, fds[1])},
		"two": {fileOf(t, fds[2]), fileOf(t, fds[3])},
	}
	k.says(opPut, "lane/a", `{"Kind":"newest"}`, fds[0])
	k.says(opPut, "next/a", `"peer"`, fds[1])
	again, err := sys.Dup(fds[1])
	if err != nil {
		t.Fatal(err)
	}
	k.says(opPut, "port/a", `{}`, again)
	k.says(opDrop, "next/a", "") // its descriptor is that of port/a, and stays
	k.says(opPut, "two", "1", fds[2], fds[3])
	k.says(opPut, "gone", "1", fds[4])
	k.says(opDrop, "gone", "")
	k.says(opPut, "words", `"old"`)
	k.mu.Lock()
	k.store.end = stateBytes // no record has room
	k.mu.Unlock()
	k.says(opPut, "words", `"new"`)
	if err := k.store.await(); err != nil {
		t.Fatal(err)
	}
	if n := len(f.names()); n != 5 { // four, and the records
		t.Errorf("the store has %v", f.names())
	}
	end()
	for range 3 { // one keeper behind the other
		l := f.next()
		if err := l.read(); err != nil {
			t.Fatal(err)
		}
		k = newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
		if !k.takeLeft(l, nil) {
			t.Fatal("the next keeper takes nothing")
		}
		k.mu.Lock()
		got := map[string][]sys.FileID{}
		for _, e := range k.shelf {
			for _, fd := range e.fds {
				got[e.name] = append(got[e.name], fileOf(t, fd))
			}
		}
		if words := k.entry("words"); string(words.data) != `"new"` || k.entry("gone").name != "" ||
			k.entry("next/a").name != "" || k.entry(StoreEntry).name == "" {
			t.Errorf("the shelf is %v", k.shelf)
		}
		if len(got) != len(want) {
			t.Errorf("descriptors of %v, want %v", got, want)
		}
		for name, ids := range want {
			if !slices.Equal(got[name], ids) {
				t.Errorf("%s: other descriptors: %v, want %v", name, got[name], ids)
			}
		}
		k.mu.Unlock()
		endStoring(k)
	}
}

// TestStoreKilledBetweenSteps kills the keeper behind each message to systemd, and behind each
// record: the next one finds what was there before or behind the change, and nothing else stays.
func TestStoreKilledBetweenSteps(t *testing.T) {
	for step := range 4 {
		f := newFakeStore(t, 100)
		k, end := storing(t)
		fds := pipeEnds(t, 2)
		old, fresh := fileOf(t, fds[0]), fileOf(t, fds[1])
		k.says(opPut, "port/a", `"old"`, fds[0])
		s := k.store
		k.mu.Lock()
		names, err := s.hold(fds[1:])
		if step == 1 { // the record is torn
			_, err = s.state.WriteAt([]byte{200, 0, 0, 0, 1, 2, 3, 4, '{'}, s.end)
		}
		if step >= 2 {
			err = errors.Join(err, s.write(storeRecord{Name: "port/a", Data: json.RawMessage(`"new"`), FDs: names}))
		}
		if step >= 3 {
			err = errors.Join(err, s.release(fds[:1]))
		}
		if err = errors.Join(err, s.await()); err != nil {
			t.Fatal(err)
		}
		k.mu.Unlock()
		end()
		_ = sys.CloseFD(fds[1])
		l := f.next()
		if err := l.read(); err != nil {
			t.Fatal(err)
		}
		k = newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
		k.takeLeft(l, nil)
		k.mu.Lock()
		e, want := k.entry("port/a"), old
		if step >= 2 {
			want = fresh
		}
		if len(e.fds) != 1 || fileOf(t, e.fds[0]) != want {
			t.Errorf("step %d: %+v, want the file %v", step, e, want)
		}
		s = k.store
		k.mu.Unlock()
		if err := s.await(); err != nil {
			t.Fatal(err)
		}
		if names := f.names(); len(names) != 2 {
			t.Errorf("step %d: the store has %v, want the records and a descriptor", step, names)
		}
		k.says(opPut, "more", `"behind what was torn"`)
		endStoring(k)
		l = f.next()
		if err := l.read(); err != nil || len(l.entries) != 2 {
			t.Errorf("step %d: the keeper behind it finds %v, %v", step, l.entries, err)
		}
		for _, fd := range l.fds {
			_ = sys.CloseFD(fd)
		}
	}
}

// TestStoreIsFull: where the store takes no more, the keeper goes on without, says so, tells its
// children, and leaves nothing there.
func TestStoreIsFull(t *testing.T) {
	f := newFakeStore(t, 4)
	var journal testenv.Buffer
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(&journal, nil))})
	k.beginStore()
	testenv.Until(t, time.Minute, "the store is there", func() bool { return k.has(StoreEntry) })
	ours, theirs := linkPair(t)
	defer ours.Close()
	defer theirs.Close()
	k.mu.Lock()
	k.children[Reader] = &child{Process: Process{Role: Reader}, conn: ours}
	k.mu.Unlock()
	for i, fd := range pipeEnds(t, 6) {
		k.says(opPut, "port/"+strconv.Itoa(i), "1", fd)
	}
	testenv.Until(t, time.Minute, "the store is given up", func() bool { return !k.has(StoreEntry) })
	if m, _, err := receive(theirs); err != nil || m.Op != opDrop || m.Name != StoreEntry {
		t.Errorf("the reader hears %+v, %v", m, err)
	}
	testenv.Until(t, time.Minute, "the store is empty", func() bool { return len(f.names()) == 0 })
	k.says(opDrop, "port/0", "")
	if !k.has("port/5") || k.has("port/0") || !strings.Contains(journal.String(), "FileDescriptorStoreMax=") {
		t.Errorf("the shelf is %v, and the journal:\n%s", k.shelf, &journal)
	}
	endStoring(k)
}

// TestStoreThatIsDeaf: where systemd does not hear any more, the keeper gives the store up, and the
// next one takes nothing of what is there.
func TestStoreThatIsDeaf(t *testing.T) {
	f := newFakeStore(t, 100)
	k, end := storing(t)
	k.says(opPut, "port/a", "1", pipeEnds(t, 1)...)
	if err := k.store.await(); err != nil {
		t.Fatal(err)
	}
	_ = f.conn.Close()
	k.says(opPut, "port/b", "1", pipeEnds(t, 1)...)
	if k.has(StoreEntry) || !k.has("port/a") || !k.has("port/b") {
		t.Errorf("the shelf is %v", k.shelf)
	}
	l := f.next()
	if err := l.read(); err == nil || len(l.fds) == 0 {
		t.Errorf("the next keeper finds %v of %v", l.entries, l.fds)
	}
	for _, fd := range l.fds {
		_ = sys.CloseFD(fd)
	}
	end()
}

// TestNoStore: a supervisor that keeps nothing, or none at all, is told nothing more.
func TestNoStore(t *testing.T) {
	f := newFakeStore(t, 0)
	var journal testenv.Buffer
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(&journal, nil))})
	k.beginStore()
	testenv.Until(t, time.Minute, "it is said once",
		func() bool { return strings.Contains(journal.String(), "keeps no descriptors") })
	k.says(opPut, "port/a", "1", pipeEnds(t, 1)...)
	f.mu.Lock()
	if len(f.said) != 3 || strings.Contains(journal.String(), "level=ERROR") || k.has(StoreEntry) {
		t.Errorf("systemd hears %q; the journal:\n%s", f.said, &journal)
	}
	f.mu.Unlock()
	endStoring(k)
	t.Setenv("NOTIFY_SOCKET", "")
	k = newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	k.beginStore()
	if k.store != nil {
		t.Error("a store without a supervisor")
	}
}

// TestStoreThatCannotBeTaken: another form, no list, an end, or damage: it is closed, and taken out
// of the store.
func TestStoreThatCannotBeTaken(t *testing.T) {
	for name, change := range map[string]func(*keeper){
		"another form": func(k *keeper) {
			k.store.end = 0
			_ = k.store.write(snapshotHead{storeForm + 1, 0})
		},
		"no list": func(k *keeper) { _ = k.store.remove(k.store.name) },
		"damage":  func(k *keeper) { _, _ = k.store.state.WriteAt([]byte("damage"), 3) },
		"it is over": func(k *keeper) {
			k.place(message{Op: opPut, Name: EndEntry, Data: json.RawMessage("true")}, nil)
		},
		"no snapshot": func(k *keeper) { k.store.end = 0; _ = k.store.write(snapshotHead{storeForm, 1000}) },
	} {
		f := newFakeStore(t, 100)
		k, end := storing(t)
		k.says(opPut, "port/a", "1", pipeEnds(t, 1)...)
		k.mu.Lock()
		change(k)
		err := k.store.await()
		k.mu.Unlock()
		end()
		l := f.next()
		if err = errors.Join(err, l.read()); err == nil {
			t.Errorf("%s: it is taken: %v", name, l.entries)
		}
		k = newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
		if k.takeLeft(l, err) || len(k.shelf) > 0 {
			t.Errorf("%s: the keeper takes %v", name, k.shelf)
		}
		testenv.Until(t, time.Minute, "the store is empty", func() bool { return len(f.names()) == 0 })
	}
}

// TestStoreThatIsDropped: who drops it may listen at once where a listener in it did, also while
// systemd has that open.
func TestStoreThatIsDropped(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File() // systemd's
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ours, err := sys.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	(&left{fds: map[string]int{"x": ours}}).drop()
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// TestStoreLacksADescriptor: an entry of which systemd has not kept all is left out; the others are
// there.
func TestStoreLacksADescriptor(t *testing.T) {
	f := newFakeStore(t, 100)
	k, end := storing(t)
	fds := pipeEnds(t, 2)
	k.says(opPut, "port/a", "1", fds[0])
	k.says(opPut, "port/b", "1", fds[1])
	k.mu.Lock()
	err := errors.Join(k.store.remove(k.store.held[fds[0]].name), k.store.await())
	k.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	end()
	l := f.next()
	if err := l.read(); err != nil {
		t.Fatal(err)
	}
	k = newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	if !k.takeLeft(l, nil) || k.has("port/a") || !k.has("port/b") {
		t.Errorf("the shelf is %v", k.shelf)
	}
	endStoring(k)
}

// TestBellOutlivesAReader: a reader that nobody has seen end is gone since it lived last, whatever
// the next one notes meanwhile.
func TestBellOutlivesAReader(t *testing.T) {
	b, err := NewBell()
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	defer b.mem.Close()
	open := func() *Bell {
		fd, err := sys.Dup(int(b.File().Fd()))
		if err != nil {
			t.Fatal(err)
		}
		o, err := OpenBell(os.NewFile(uintptr(fd), "bell"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = o.mem.Close() })
		return o
	}
	first := open()
	if at := first.LivedAt(); at != 0 {
		t.Errorf("before the first reader there was one, at %d", at)
	}
	first.Lives(time.Unix(0, 1000))
	next := open()
	next.Lives(time.Unix(0, 5000))
	if at := next.LivedAt(); at != 1000 {
		t.Errorf("the reader before lived at %d, want 1000", at)
	}
}

// TestLeftInStore reads what systemd tells a process that it starts.
func TestLeftInStore(t *testing.T) {
	for _, env := range [][3]string{
		{"", "1", "tallywheel.1"},
		{"1", "1", "tallywheel.1"},
		{strconv.Itoa(os.Getpid()), "x", "tallywheel.1"},
		{strconv.Itoa(os.Getpid()), "1", "http"},
	} {
		t.Setenv("LISTEN_PID", env[0])
		t.Setenv("LISTEN_FDS", env[1])
		t.Setenv("LISTEN_FDNAMES", env[2])
		if l, err := leftInStore(); l != nil || err != nil {
			t.Errorf("%q: %+v, %v", env, l, err)
		}
	}
	forgetListening()
	for _, name := range listenVariables {
		if v, ok := os.LookupEnv(name); ok {
			t.Errorf("children would inherit %s=%s", name, v)
		}
	}
}

// TestRecords reads a file of records that ends anywhere.
func TestRecords(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &store{state: f}
	var ends []int64
	for _, r := range []any{
		snapshotHead{storeForm, 1},
		storeRecord{Name: "a"},
		storeRecord{Name: "b"},
		storeRecord{Name: "a", Gone: true},
		storeRecord{Name: "b", FDs: []string{"x"}},
	} {
		if err := s.write(r); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, s.end)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", "a", "a b", "b", "b"}
	for n := range len(b) + 1 {
		whole := 0
		for _, end := range ends {
			if int64(n) >= end {
				whole++
			}
		}
		part := append(bytes.Clone(b[:n]), make([]byte, 64)...)
		all, end, err := records(bytes.NewReader(part), int64(len(part)))
		var names []string
		for _, r := range all {
			names = append(names, r.Name)
		}
		switch {
		case whole < 2 && err == nil:
			t.Fatalf("%d bytes: taken, without the whole of the snapshot", n)
		case whole >= 2 && (err != nil || strings.Join(names, " ") != want[whole-1] || end != ends[whole-1]):
			t.Fatalf("%d bytes: %v up to %d, %v; want %s", n, names, end, err, want[whole-1])
		}
	}
}
