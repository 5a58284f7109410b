package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
)

// TestAppendAnswer: an answer is what a client reads as one, and takes no memory but that of its
// bytes, as those of the other servers.
func TestAppendAnswer(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 150)
	for _, closes := range []bool{false, true} {
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(appendAnswer(nil, body, closes))), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, body) || r.Close != closes || r.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("closes %v: %d bytes, %+v, %v", closes, len(got), r, err)
		}
	}
	room := make([]byte, 0, 2*len(body))
	if n := testing.AllocsPerRun(100, func() { room = appendAnswer(room[:0], body, false) }); n > 0 {
		t.Errorf("an answer makes %v allocations", n)
	}
}
