package server

import (
	"fmt"
	"testing"
)

// TestInlineHoldsBodiesOnce feeds a chunked body to a connection a little at a time: what it holds of it is the body and no framing.
func TestInlineHoldsBodiesOnce(t *testing.T) {
	s, err := New(Config{Lean: func(*LeanResponse, *LeanRequest) { t.Error("a request that has no end was served") }})
	if err != nil {
		t.Fatal(err)
	}
	head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	a := newInline(&conn{l: &loop{srv: s}})
	a.input([]byte(head))
	const chunks, step = 20_000, 7
	var raw []byte
	for i := range chunks {
		raw = fmt.Appendf(raw, "1;a=0123\r\n%c\r\n", 'a'+i%26)
	}
	for at := 0; at < len(raw); at += step {
		a.input(raw[at:min(at+step, len(raw))])
		if most := len(head) + 4*step; len(a.held) > most {
			t.Fatalf("%d bytes of input are held for a body of %d, want at most %d", len(a.held), len(a.whole), most)
		}
	}
	if len(a.whole) != chunks {
		t.Errorf("%d bytes of the body have come, want %d", len(a.whole), chunks)
	}
}
