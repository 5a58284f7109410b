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
