package frametest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/line"
)

// broken is a decoder of lines with a fault.
type broken struct {
	frame.Decoder
	decode func(inner frame.Decoder, view []byte, sink frame.Sink) int
	over   int // said of Max
}

func (b *broken) Decode(view []byte, sink frame.Sink) int { return b.decode(b.Decoder, view, sink) }
func (b *broken) Max() int                                { return b.Decoder.Max() - b.over }
func (b *broken) Silence() time.Duration                  { return 0 }

// Each breach of the law is found.
func TestBreachesAreFound(t *testing.T) {
	stream := bytes.Repeat([]byte("some text\nand a longer line that does not fit\n\n"), 20)
	var kept []byte
	for want, d := range map[string]broken{
		"writes to what it is shown": {decode: func(inner frame.Decoder, view []byte, sink frame.Sink) int {
			n := inner.Decode(view, sink)
			view[0] = 'x'
			return n
		}},
		"is not the next": {decode: func(inner frame.Decoder, view []byte, sink frame.Sink) int {
			if kept != nil { // what an earlier call brought
				sink.Skip(kept)
				return len(kept)
			}
			kept = view[:1]
			return inner.Decode(view, sink)
		}},
		"said to be classified": {decode: func(inner frame.Decoder, view []byte, sink frame.Sink) int {
			return min(inner.Decode(view, sink)+1, len(view))
		}},
		"nothing new": {decode: func(inner frame.Decoder, view []byte, sink frame.Sink) int {
			sink.Damaged()
			return inner.Decode(view, sink)
		}},
		"more than": {decode: frame.Decoder.Decode, over: 15},
		"in one piece and in pieces": {decode: func(inner frame.Decoder, view []byte, sink frame.Sink) int {
			if len(view) > 400 {
				sink.Damaged()
			}
			return inner.Decode(view, sink)
		}},
		"saved and restored": {decode: frame.Decoder.Decode}, // it hides the state of the decoder
	} {
		kept = nil
		err := frametest.Check(func() frame.Decoder {
			return &broken{Decoder: line.New(20, frame.NoCheck), decode: d.decode, over: d.over}
		}, stream, 7)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not found: %v", want, err)
		}
	}
}
