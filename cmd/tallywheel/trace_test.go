package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab/heatmap"
)

// TestTraceAndProfile: a trace has a CPU profile beside it, both can be read, and both are named.
func TestTraceAndProfile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a.trace")
	var talk bytes.Buffer
	stop, err := tracing{length: time.Hour, out: out}.start(&talk)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil || strings.Count(talk.String(), "\n") != 2 {
		t.Errorf("stopped again: %v; it says %q", err, talk.String())
	}
	if _, err := heatmap.Read(out); err != nil {
		t.Errorf("the trace: %v", err)
	}
	profile := strings.TrimSuffix(out, ".trace") + ".pprof"
	if b, err := os.ReadFile(profile); err != nil || !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		t.Errorf("the profile begins with %x: %v; want what gzip has packed", b[:min(len(b), 4)], err)
	}
	for _, name := range []string{out, profile} {
		if !strings.Contains(talk.String(), name) {
			t.Errorf("%q does not name %s", talk.String(), name)
		}
	}
}

// TestTraceWithoutProfile: where the profile cannot be written nothing begins, and another trace
// can.
func TestTraceWithoutProfile(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "b")
	if err := os.Mkdir(profileOf(out), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (tracing{length: time.Hour, out: out}).start(&bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "--trace-out: ") {
		t.Errorf("it begins: %v", err)
	}
	stop, err := tracing{length: time.Hour, out: filepath.Join(dir, "c")}.start(&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
