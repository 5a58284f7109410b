package processdrift

import (
	"os"
	"testing"
)

// TestSettled: what is closed, or ends, in a moment is not counted as held.
func TestSettled(t *testing.T) {
	var files []*os.File
	for range 8 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, r, w)
	}
	over := make(chan struct{})
	for range 8 {
		go func() { <-over }()
	}
	busy := lookAround()
	close(over)
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if now := busy.settled(); now.descriptors > busy.descriptors-16 || now.goroutines > busy.goroutines-8 {
		t.Errorf("%+v, and when all is closed %+v", busy, now)
	}
}
