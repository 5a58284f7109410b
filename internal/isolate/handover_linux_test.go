package isolate

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// upgraded is a keeper whose children are of a program that takes over in some form, and which hear
// this test.
func upgraded(t *testing.T, form int) (k *keeper, recorder *Link) {
	t.Helper()
	k = newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	for _, role := range []Role{Reader, Recorder} {
		ours, conn := linkPair(t)
		c := &child{
			Process: Process{Role: role, PID: os.Getpid()}, conn: ours, ready: true, form: form,
			heard: make(chan struct{}),
		}
		k.children[role] = c
		go k.listen(c, ours)
		t.Cleanup(func() { _ = conn.Close(); <-c.heard; _ = ours.Close() })
		recorder = newLink(conn)
	}
	return k, recorder
}

// TestHandoverThatFails: where the program cannot be executed the keeper goes on, and hears what
// was said meanwhile.
func TestHandoverThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k, link := upgraded(t, handoverForm)
	k.signals = make(chan os.Signal, 8)
	defer signal.Stop(k.signals)
	entry, err := sys.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	k.place(message{Op: opPut, Name: "before"}, []int{entry})
	for n := range 3 {
		resume := k.pause()
		if err := link.Put("meanwhile"+strconv.Itoa(n), nil); err != nil {
			t.Fatal(err)
		}
		resume()
		if err := k.handOver(&swap{program: f}); err == nil {
			t.Fatal("it returns without an error")
		}
	}
	if err := link.Drop("before"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); k.has("before"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody listens behind a handover that has failed")
		}
	}
	for n := range 3 {
		if name := "meanwhile" + strconv.Itoa(n); !k.has(name) {
			t.Errorf("%s is not on the shelf", name)
		}
	}
	for _, s := range heard {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		if got := <-k.signals; got != s {
			t.Errorf("behind a handover that has failed %v is heard as %v", s, got)
		}
	}
	if sets, err := keptOnExec(f); err != nil || sets {
		t.Errorf("descriptors stay open in other programs: %v, %v", sets, err)
	}
}

// keptOnExec reports whether another program would have the file.
func keptOnExec(f *os.File) (bool, error) {
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return false, err
	}
	const cloexec = 0o2000000
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 8, 64)
			return n&cloexec == 0, err
		}
	}
	return false, os.ErrNotExist
}

// TestHandoverOfAnotherForm: a program that takes over in another form, or not at all, is not
// executed.
func TestHandoverOfAnotherForm(t *testing.T) {
	for _, form := range []int{0, handoverForm + 1} {
		k, _ := upgraded(t, form)
		if err := k.handOver(&swap{}); err == nil {
			t.Errorf("form %d: it is executed", form)
		}
	}
	b, err := json.Marshal(handover{Form: handoverForm + 1})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := sys.SealedMemory("handover", int64(len(b)))
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	taken, err := sys.Dup(fd) // it is closed by who takes it
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strconv.Itoa(taken), "x", "1", "-1", "99999"} {
		t.Setenv(handoverVariable, text)
		if h, err := inherit(); err == nil || h != nil {
			t.Errorf("%s: it takes %+v", text, h)
		}
		if _, ok := os.LookupEnv(handoverVariable); ok {
			t.Errorf("%s: children would inherit the variable", text)
		}
	}
}
