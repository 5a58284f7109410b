package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// reloading is a service of sources that all change by its next reload, each with a device that has
// sent something and stays connected.
type reloading struct {
	*service
	data string
	sent uint64
}

func startReloading(t *testing.T) *reloading {
	t.Helper()
	const sources, frames = 12, 50
	dir := t.TempDir()
	text := ""
	var addresses []string
	for i := range sources {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", freePort(t)))
		peers := []string{"first", "all"}[i%2]
		text += fmt.Sprintf("  - {id: s%d, tcp: {listen: %q, peers: %s}, frame: tally128, silent_after: 60s}\n", i,
			addresses[i], peers)
	}
	r := &reloading{service: startService(t, dir, text, ""), data: filepath.Join(dir, "data")}
	for i, addr := range addresses {
		k := &talker{id: fmt.Sprintf("s%d", i), device: uint32(i + 1)}
		k.say(t, from(t, "127.0.0.2", addr), frames)
		r.sent += frames
	}
	r.stores(t)
	return r
}

// stores waits until the books of all starts have as many frames as were sent.
func (r *reloading) stores(t *testing.T) {
	t.Helper()
	var stored, not uint64
	testenv.Until(t, time.Minute, "all that was sent is stored", func() bool {
		var now ledger.Sheet
		if !r.get("api/v1/sheet", &now) {
			return false
		}
		before := allBooks(t, r.data)
		stored, not = before.stored, before.unread+before.missing
		for _, p := range append(now.Ports, now.Leaving...) {
			stored, not = stored+p.Frames.Stored, not+p.Frames.Missing
			for _, n := range p.Unread {
				not += n
			}
		}
		return stored >= r.sent
	})
	if n := storedOnce(t, r.data); stored != r.sent || n != r.sent || not > 0 {
		t.Errorf("%d frames were sent: the books have %d, %d as lost, and the log %d", r.sent, stored, not, n)
	}
}

// reload has the recorder change all sources, and does not wait for it.
func (r *reloading) reload(t *testing.T, from, to string) {
	t.Helper()
	file := filepath.Join(r.dir, "tallywheel.yaml")
	b, err := os.ReadFile(file)
	if err == nil {
		text := strings.ReplaceAll(string(b), "silent_after: "+from, "silent_after: "+to)
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.systemctl(t, "kill", "--signal=HUP", "--kill-who=main", r.unit)
}

// TestSystemdStopsInAReload stops a service while it takes up a configuration in which all sources
// have changed: it does not wait for a reader that has ended.
func TestSystemdStopsInAReload(t *testing.T) {
	r := startReloading(t)
	for i := range 3 {
		r.reload(t, fmt.Sprintf("%ds", 60+i), fmt.Sprintf("%ds", 61+i))
		keeper := r.listens(t, 0)
		r.systemctl(t, "stop", r.unit)
		if said := r.journal(); strings.Contains(said, "has not come to its end") {
			t.Fatalf("round %d: the stop waits for a reader that has ended:\n%s", i, said)
		}
		r.systemctl(t, "start", r.unit)
		r.listens(t, keeper)
	}
	r.stores(t)
}

// TestSystemdKillBehindAReload kills the keeper while the recorder has a reload to do, or has just
// done it: what systemd keeps of sources that have left is in one part of the history.
func TestSystemdKillBehindAReload(t *testing.T) {
	r := startReloading(t)
	for i := range 4 {
		r.reload(t, fmt.Sprintf("%ds", 60+i), fmt.Sprintf("%ds", 61+i))
		r.again(t, "main")
		r.stores(t)
	}
}
