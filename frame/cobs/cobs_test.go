package cobs_test

import (
	"bytes"
	"testing"

	"github.com/tallywheel/tallywheel/frame/cobs"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

// Examples of the paper and of its usual presentation: content and what is on the wire.
func TestKnown(t *testing.T) {
	run := func(from, to int) (b []byte) {
		for v := from; v <= to; v++ {
			b = append(b, byte(v))
		}
		return b
	}
	for _, c := range []struct{ content, wire []byte }{
		{[]byte{}, []byte{1, 0}},
		{[]byte{0}, []byte{1, 1, 0}},
		{[]byte{0x11, 0x22, 0, 0x33}, []byte{3, 0x11, 0x22, 2, 0x33, 0}},
		{run(1, 254), append(append([]byte{0xFF}, run(1, 254)...), 0)},
		{run(1, 255), append(append([]byte{0xFF}, run(1, 254)...), 2, 0xFF, 0)},
		{append([]byte{0}, run(1, 254)...), append(append([]byte{1, 0xFF}, run(1, 254)...), 0)},
	} {
		if got := cobs.Encode(nil, c.content); !bytes.Equal(got, c.wire) {
			t.Errorf("Encode of %d bytes gives % X, want % X", len(c.content), got, c.wire)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		content := rapid.SliceOf(rapid.Byte()).Draw(t, "content")
		wire := cobs.Encode(nil, content)
		if bytes.IndexByte(wire, 0) != len(wire)-1 {
			t.Fatalf("a zero inside % X", wire)
		}
		got, ok := cobs.Decode(nil, wire[:len(wire)-1])
		if !ok || !bytes.Equal(got, content) {
			t.Fatalf("% X comes back as % X, %v", content, got, ok)
		}
	})
}
