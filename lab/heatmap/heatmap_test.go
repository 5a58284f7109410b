package heatmap

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// waitForGate blocks until the gate opens: the map should name it.
func waitForGate(gate chan struct{}) { <-gate }

// record traces goroutines of which it is known what they do, and returns the file.
func record(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.trace")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := trace.Start(f); err != nil {
		t.Skipf("SKIPPED: another trace is under way: %v; run without -trace", err)
	}
	gate := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { waitForGate(gate) })
	}
	all.Go(func() { // reads a file that is always there: system calls
		for range 200 {
			if _, err := os.ReadFile("/proc/self/stat"); err != nil {
				t.Error(err)
			}
		}
	})
	stacks := make([]byte, 1<<20)
	testenv.Until(t, time.Minute, "three wait at the gate", func() bool {
		n := 0
		for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(g, "[chan receive") && strings.Contains(g, "heatmap.waitForGate(") {
				n++
			}
		}
		return n == 3
	})
	time.Sleep(30 * time.Millisecond) // the time that the others are blocked, not a synchronisation
	close(gate)
	all.Wait()
	trace.Stop()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMap(t *testing.T) {
	m, err := Read(record(t))
	if err != nil {
		t.Fatal(err)
	}
	if m.Length < 30*time.Millisecond || m.Partial != "" {
		t.Errorf("a trace of %v, %s", m.Length, m.Partial)
	}
	var blocked *Blocker
	for i := range m.Blockers {
		if strings.HasSuffix(m.Blockers[i].Where, "heatmap.waitForGate") {
			blocked = &m.Blockers[i]
		}
	}
	if blocked == nil {
		t.Fatalf("the gate is not among what blocked: %+v", m.Blockers)
	}
	if blocked.Times != 3 || blocked.Total < 60*time.Millisecond || !strings.Contains(blocked.Reason, "chan receive") {
		t.Errorf("three goroutines waited for some 30 ms each at the gate; the map says %+v", *blocked)
	}
	if len(m.CallTimes) < 200 {
		t.Errorf("%d system calls, want at least those of 200 reads", len(m.CallTimes))
	}
	calls := 0
	for _, g := range m.Goroutines {
		calls = max(calls, g.Calls)
		if g.Calls >= 200 && !strings.Contains(g.perCall(), "for each: ") {
			t.Errorf("of %d calls it is said: %q", g.Calls, g.perCall())
		}
	}
	if calls < 200 {
		t.Errorf("no goroutine made more than %d calls", calls)
	}
	for _, g := range m.Goroutines { // what is in the strips is what is in the sums
		for s := range states {
			var sum time.Duration
			for _, b := range g.Bins {
				sum += b[s]
			}
			if sum != g.Total[s] {
				t.Errorf("%s: %v in the strip, %v in all, %s", g.Name, sum, g.Total[s], s)
			}
		}
	}
	var ran time.Duration
	for _, p := range m.Processors {
		if ran += p.Running; p.Running+p.Idle > m.Length || p.Running > 0 && p.Threads == 0 || p.Moves > p.Starts {
			t.Errorf("of a trace of %v: %v", m.Length, p)
		}
	}
	if ran < m.Total[Running]/2 || ran > m.Length*time.Duration(len(m.Processors)) { // a goroutine runs on a P
		t.Errorf("%v on processors, goroutines ran for %v", ran, m.Total[Running])
	}
	var page, text bytes.Buffer
	if err := m.HTML(&page, "a <test>"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"waitForGate", "a &lt;test&gt;", "<svg", "runnable"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page.String(), "ZgotmplZ") || strings.Contains(page.String(), "<script") {
		t.Error("the page has what it should not")
	}
	if err := m.Text(&text); err != nil || !strings.Contains(text.String(), "waitForGate") {
		t.Errorf("the text: %v\n%s", err, text.String())
	}
}

// TestDamagedTraces: one that is cut off is shown up to there, what is none is refused.
func TestDamagedTraces(t *testing.T) {
	whole, err := os.ReadFile(record(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	read := func(b []byte) (*Map, error) {
		path := filepath.Join(dir, "x.trace")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return Read(path)
	}
	for _, b := range [][]byte{nil, []byte("GET / HTTP/1.1\r\n"), whole[:10]} {
		if m, err := read(b); err == nil {
			t.Errorf("%d bytes are taken for a trace: %+v", len(b), m)
		}
	}
	// no panic, and whatever is said is said of what is there
	for cut := len(whole) / 8; cut < len(whole); cut += len(whole) / 8 {
		if m, err := read(whole[:cut]); err == nil && m.Length <= 0 {
			t.Errorf("cut at %d: %+v", cut, m)
		}
	}
	if _, err := Read(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a file that is not there")
	}
}

func TestBucket(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 0, time.Microsecond: 0, 1500: 1, 2 * time.Microsecond: 1,
		3 * time.Microsecond: 2, time.Millisecond: 10, time.Hour: callBuckets - 1,
	} {
		if got := bucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}
