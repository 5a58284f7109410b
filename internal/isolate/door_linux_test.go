package isolate

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
)

// TestDoorWithoutDescriptors asks for an upgrade while the keeper can open nothing: it hears that
// once it can, and whoever asks then, and says once that it could not.
func TestDoorWithoutDescriptors(t *testing.T) {
	said := &testenv.Buffer{}
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(said, nil))})
	path := filepath.Join(t.TempDir(), "door")
	data, err := json.Marshal(path)
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	k.openDoor(data)
	k.mu.Unlock()
	defer func() { _ = k.door.Close() }()
	asks := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.asking)
	}
	client, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(client) }()
	restore := testenv.WithoutDescriptors(t)
	err = syscall.Connect(client, &syscall.SockaddrUnix{Name: path})
	heard := func() bool { return strings.Contains(said.String(), "cannot hear") }
	for end := time.Now().Add(time.Minute); err == nil && !heard() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	restore()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "who has waited is heard", func() bool { return asks() == 1 })
	c, err := ipc.Dial(t.Context(), path, ipc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testenv.Until(t, time.Minute, "who comes then is heard", func() bool { return asks() == 2 })
	if n := strings.Count(said.String(), "cannot hear"); n != 1 {
		t.Errorf("it says %d times that it cannot hear, want once: %q", n, said.String())
	}
	for _, c := range k.asking {
		_ = c.Close()
	}
}

// A door that cannot be opened for want of descriptors is opened once there are some, wherever the
// recorder has put it last, and that is said once. A keeper that has ended opens none.
func TestDoorThatCannotBeOpened(t *testing.T) {
	said := &testenv.Buffer{}
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(said, nil))})
	k.children[Reader] = &child{}
	dir := t.TempDir()
	restore := testenv.WithoutDescriptors(t)
	put := func(path string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		data, err := json.Marshal(path)
		if err != nil {
			t.Error(err)
		}
		k.openDoor(data)
		k.openDoor(data) // as behind a kill of the recorder
	}
	path := filepath.Join(dir, "second")
	put(filepath.Join(dir, "first"))
	put(path)
	restore()
	testenv.Until(t, time.Minute, "it is open", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.door != nil && k.door.Addr() == path
	})
	if n := strings.Count(said.String(), "tries again"); n != 2 {
		t.Errorf("it says %d times that it tries again, want once for each: %q", n, said.String())
	}
	restore = testenv.WithoutDescriptors(t)
	put(filepath.Join(dir, "third"))
	k.finish(0)
	restore()
	if k.doorAt != "" {
		t.Errorf("a keeper that has ended opens %s", k.doorAt)
	}
}
