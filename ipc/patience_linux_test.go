package ipc

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// sentFile is a connection at which a message with a file waits, and one behind it.
func sentFile(t *testing.T, cfg ConnConfig) (b *Conn) {
	t.Helper()
	a, theirs, err := Pair(ConnConfig{Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = Inherit(theirs, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	if err := a.Send(Message{Data: []byte("with a file"), FDs: []int{int(os.Stderr.Fd())}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(Message{Data: []byte("behind")}); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFilesWaitForDescriptors has a message come while the process can open no more, for a moment:
// it comes whole, a little later.
func TestFilesWaitForDescriptors(t *testing.T) {
	for _, bare := range []bool{false, true} {
		b := sentFile(t, ConnConfig{Bare: bare, Patience: time.Minute})
		restore := testenv.WithoutDescriptors(t)
		restored := make(chan struct{})
		time.AfterFunc(5*lookAgain, func() { defer close(restored); restore() })
		m, err := b.Receive()
		<-restored
		if err != nil || string(m.Data) != "with a file" || len(m.Files)+len(m.FDs) != 1 {
			t.Fatalf("bare %v: got %q, %d files, %d descriptors: %v", bare, m.Data, len(m.Files), len(m.FDs), err)
		}
		if bare {
			flags, _, err := syscall.Syscall(syscall.SYS_FCNTL, uintptr(m.FDs[0]), syscall.F_GETFD, 0)
			if err != 0 || flags&syscall.FD_CLOEXEC == 0 {
				t.Errorf("flags %#x, %v: a process that is started would have it", flags, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if m, err := b.Receive(); err != nil || string(m.Data) != "behind" {
			t.Errorf("the next one is %q: %v", m.Data, err)
		}
	}
}

// TestFilesWaitNotForEver has a message come while the process can open no more for longer than it
// is to wait: its data comes with the error, the next one as always, and nothing stays open. A
// deadline ends the wait, and leaves the message.
func TestFilesWaitNotForEver(t *testing.T) {
	const patience = 5 * lookAgain
	for _, ends := range []bool{false, true} {
		b := sentFile(t, ConnConfig{Bare: true, Patience: patience})
		before := descriptors(t)
		restore := testenv.WithoutDescriptors(t)
		if ends {
			_ = b.SetReadDeadline(time.Now().Add(-time.Second))
			if m, err := b.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("behind the deadline: %+v, %v", m, err)
			}
			_ = b.SetReadDeadline(time.Time{})
		}
		began := time.Now()
		m, err := b.Receive()
		took := time.Since(began)
		next, nextErr := b.Receive()
		text := string(next.Data)
		restore()
		if !errors.Is(err, ErrFiles) || len(m.FDs) > 0 {
			t.Errorf("got %+v, %v; want ErrFiles", m, err)
		}
		if took < patience {
			t.Errorf("it waited for %v, and not for %v", took, patience)
		}
		if nextErr != nil || text != "behind" {
			t.Errorf("the next one is %q: %v", text, nextErr)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors were open before, %d are after", before, after)
		}
	}
}
