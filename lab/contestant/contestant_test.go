package contestant

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProtocol(t *testing.T) {
	var out bytes.Buffer
	turn, err := New([]string{"nop", "depth=8", "seconds=0.25", "paths=a,b"}, strings.NewReader("go\nmore"), &out)
	if err != nil {
		t.Fatal(err)
	}
	if turn.Int("depth", 1) != 8 || turn.Int("batch", 3) != 3 || turn.Seconds() != 250*time.Millisecond ||
		len(turn.Paths()) != 2 {
		t.Errorf("parameters: %+v", turn.params)
	}
	before := time.Now()
	until, err := turn.Ready()
	if err != nil || until.Before(before.Add(250*time.Millisecond)) {
		t.Errorf("ready: %v %v", until.Sub(before), err)
	}
	if took, err := turn.Done(); err != nil || took <= 0 {
		t.Errorf("done after %v: %v", took, err)
	}
	if err := turn.Result(time.Second, 1000, Value{"lost_frames", 3}); err != nil {
		t.Error(err)
	}
	if got, want := out.String(), "ready\ndone\nBenchmarkNop 1000 1e+06 ns/op 3 lost_frames\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if turn.Result(time.Second, 0) == nil {
		t.Error("no operation at all is a result")
	}
}

func TestProtocolRefuses(t *testing.T) {
	if _, err := New([]string{"nop", "depth"}, nil, nil); err == nil {
		t.Error("depth without a value is taken")
	}
	turn, err := New([]string{"nop"}, strings.NewReader("stop\n"), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := turn.Ready(); err == nil {
		t.Error("stop is a start")
	}
}

func TestLatenciesLeaveAccidentsOut(t *testing.T) {
	ns := make([]int64, 2000) // two values beyond 99.9 %
	for i := range ns {
		ns[len(ns)-1-i] = int64(i) * 1000
	}
	got := map[string]float64{}
	for _, v := range Latencies(ns) {
		got[v.Metric] = v.V
	}
	if got["latency_us_p50"] != 1000 || got["latency_us_p99"] != 1980 || got["latency_us_max"] != 1999 {
		t.Errorf("percentiles: %v", got)
	}
	if _, ok := got["latency_us_p999"]; ok {
		t.Error("99.9 % of 2000 values is said, which two values decide")
	}
}

func TestFramesAfterNoise(t *testing.T) {
	stream := make([]byte, 3+2*frameSize+5)
	for _, at := range []int{3, 3 + frameSize} {
		stream[at], stream[at+1] = 0xA5, 0x5A
	}
	var f Frames
	if done := f.Take(stream); f.N != 2 || done != 3+2*frameSize {
		t.Errorf("%d frames, done with %d of %d", f.N, done, len(stream))
	}
}

// TestTextRecord: who writes text writes a record as it is.
func TestTextRecord(t *testing.T) {
	for i, c := range TextRecord(128) {
		if c < 'a' || c > 'z' {
			t.Errorf("byte %d is %q, want a letter", i, c)
		}
	}
}
