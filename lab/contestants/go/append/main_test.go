package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// writes keeps what is written, and in how many pieces.
type writes struct {
	bytes.Buffer
	pieces []int
}

func (w *writes) Write(b []byte) (int, error) {
	w.pieces = append(w.pieces, len(b))
	return w.Buffer.Write(b)
}

func (*writes) Sync() error { return nil }

// TestZapWritesWhatTheOthersDo: a line of zap is as long as the records of the others, and its file
// gets as much at a time.
func TestZapWritesWhatTheOthersDo(t *testing.T) {
	const n = contestant.LogBuffer/128 + 1
	record := contestant.TextRecord(128)
	var w writes
	appendOne, stop := zapTo(&w)
	for range n {
		if err := appendOne(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if w.Len() != n*128 || strings.Contains(w.String(), `\`) {
		t.Errorf("%d records are %d bytes: %.128q", n, w.Len(), w.String())
	}
	if w.pieces[0] != contestant.LogBuffer {
		t.Errorf("it writes %d bytes at a time, want %d", w.pieces[0], contestant.LogBuffer)
	}
}
