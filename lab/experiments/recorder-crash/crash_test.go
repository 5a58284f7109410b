package recordercrash

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab/load"
)

// TestJudge holds what is stored to what was said, with losses, repetitions and what nobody took.
func TestJudge(t *testing.T) {
	k := kept{times: map[uint64]int{}, named: 3 * load.RecordBytes}
	for n := range uint64(20) {
		k.times[n] = 1
	}
	delete(k.times, 1) // before the time that counts
	for _, lost := range []uint64{7, 8, 12, 13, 14} {
		delete(k.times, lost)
	}
	k.times[16] = 3
	got := map[string]float64{}
	for _, v := range k.judge(load.Said{Records: 20, From: 5, Unsent: []uint64{13}, Events: 2}, 128_000) {
		got[v.Metric] = v.V
	}
	for metric, want := range map[string]float64{
		"events": 2, "lost_bytes_per_event": 256, "unsent_bytes_per_event": 64, "doubled_bytes_per_event": 128,
		"unnamed_bytes_per_event": 192, "longest_gap_ms": 3,
	} {
		if got[metric] != want {
			t.Errorf("%s: %v, want %v", metric, got[metric], want)
		}
	}
}

// TestNumbers: lines are found whatever stands around them, and those that are cut are not.
func TestNumbers(t *testing.T) {
	line := func(n uint64) string {
		b := make([]byte, load.RecordBytes)
		textLine(b, n)
		if b[len(b)-1] != '\n' || bytes.IndexByte(b, '\n') != len(b)-1 {
			t.Fatalf("%q is no line", b)
		}
		return string(b)
	}
	text := line(1) + `{"body":"` + strings.TrimSpace(line(2)) + `"}` + line(3)[:100] + line(4) + line(5)[20:] +
		line(1_000_000) + line(6)[:126]
	var got []uint64
	numbers([]byte(text), func(n uint64) { got = append(got, n) })
	if want := []uint64{1, 2, 4, 1_000_000}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSupervisorStartsAgain: a program that has ended is started again, until the turn is over; one
// that fails each time ends the turn, with its last words.
func TestSupervisorStartsAgain(t *testing.T) {
	folder := t.TempDir()
	starts := filepath.Join(folder, "starts")
	s, err := supervise(folder, []string{"sh", "-c", `echo >>"$0"; [ $(wc -l <"$0") -lt 4 ] || exec sleep 60`, starts})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- s.run(over) }()
	for end := time.Now().Add(time.Minute); ; {
		if b, _ := os.ReadFile(starts); len(b) == 4 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it was not started four times")
		}
		time.Sleep(time.Millisecond) // between looks
	}
	close(over)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s, err = supervise(t.TempDir(), []string{"sh", "-c", "echo wrong configuration >&2; exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.run(nil); err == nil || !strings.Contains(err.Error(), "wrong configuration") {
		t.Errorf("a program that fails again and again: %v", err)
	}
}
