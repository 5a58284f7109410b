package recorder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame/cobs"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// TestReframeCutsNothing: a raw source whose framing is found while it is read, at any moment,
// however the bytes come, turns at the border of a frame: every frame behind it is whole, and every
// byte is in one.
func TestReframeCutsNothing(t *testing.T) {
	modbus := func(n int) []byte {
		b := []byte{byte(1 + n%3), 3, 0, byte(n), 0, 1}
		return binary.LittleEndian.AppendUint16(b, crc16.Modbus(b))
	}
	for kind, say := range map[string]func(n int) []byte{
		"modbus":   modbus,
		"tally128": func(n int) []byte { return frames(uint64(n), 1) },
		"line":     func(n int) []byte { return fmt.Appendf(nil, "%d kg\r\n", n*n*n) },
		"cobs":     func(n int) []byte { return cobs.Encode(nil, fmt.Append(nil, n, n, n)) },
	} {
		for seed := range 60 {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			l, _ := testLane(t, config.OverflowBlock)
			raw := config.Source{ID: "a", Serial: &config.Serial{}, Frame: config.Frame{Kind: "raw"}}
			found := raw
			found.Frame.Kind = kind
			l.in.dec, _ = raw.Decoder()
			dec, _ := found.Decoder()
			shadow, _ := found.Decoder()
			var all []byte
			var late [][]byte // frames behind the turn
			turned := false
			l.in.watcher = watchFunc(func(e Event) {
				switch e.Kind {
				case Turned:
					turned = true
				case SawFrame:
					all = append(all, e.Frame.Data...)
					if turned {
						late = append(late, bytes.Clone(e.Frame.Data))
					}
				default:
					t.Fatalf("%s, seed %d: event %d, bytes % x", kind, seed, e.Kind, e.Data)
				}
			})
			var sent, held []byte
			starts := map[int]int{}
			asked := 5 + rng.IntN(20)
			for n := range 40 {
				starts[len(sent)] = n
				b := say(n)
				sent = append(sent, b...)
				for len(b) > 0 {
					if n == asked {
						asked = -1
						l.reframe(dec, shadow, func() { l.in.dec = dec; l.watch(Event{Kind: Turned}) })
					}
					k := 1 + rng.IntN(len(b))
					held = append(held, b[:k]...)
					done, _ := l.Arrived(held, k, int64(len(sent)))
					held = held[done:]
					if b = b[k:]; rng.IntN(3) == 0 && len(held) > 0 {
						held = held[l.Silent(held, int64(len(sent))+int64(10*time.Millisecond)):]
					}
				}
			}
			if !turned || len(held) > 0 || !bytes.Equal(all, sent) {
				t.Fatalf("%s, seed %d: turned is %v, %d bytes are held, %d of %d came", kind, seed, turned, len(held),
					len(all), len(sent))
			}
			at := len(sent)
			for i := range late {
				at -= len(late[len(late)-1-i])
			}
			first, ok := starts[at]
			if !ok || len(late) != 40-first {
				t.Fatalf("%s, seed %d: it turns at byte %d, and %d frames follow", kind, seed, at, len(late))
			}
			balanced(t, l)
		}
	}
}

// The log and the sheet of a source that is reframed have all, under both framings; and it can be
// made raw again.
func TestReframe(t *testing.T) {
	dir := t.TempDir()
	source := config.Source{ID: "a", TCP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "raw"}}
	g := start(t, dir, nil, source)
	c := dial(t, address(g, "a"))
	defer c.Close()
	if err := g.Reframe("b", config.Frame{Kind: "tally128"}); err == nil {
		t.Error("a source that is not there is reframed")
	}
	if err := g.Reframe("a", config.Frame{Kind: "tally128", Check: "ccitt"}); err == nil {
		t.Error("a framing that is none is taken")
	}
	if err := g.Reframe("a", config.Frame{Kind: "tally128"}); err != nil {
		t.Fatal(err)
	}
	write(t, c, append(frames(5, 1)[100:], frames(6, 3)...))
	testenv.Until(t, 20*time.Second, "it turns", func() bool { return portOf(g, "a").Proof == ledger.ProofNumbers })
	write(t, c, frames(10, 2))
	stored(t, g, "a", 4)
	if err := g.Reframe("a", config.Frame{Kind: "line"}); err == nil {
		t.Error("a framing turns into another in the middle of anything")
	}
	if err := g.Reframe("a", config.Frame{Kind: "raw"}); err != nil {
		t.Fatal(err)
	}
	write(t, c, []byte("anything"))
	read := uint64(28 + 3*128 + 2*128 + 8)
	testenv.Until(t, 20*time.Second, "all is read", func() bool {
		p := portOf(g, "a")
		return p.Bytes.Read == read && p.Bytes.Framed == read
	})
	p := stop(t, g).Ports[0]
	if p.Frames.Missing != 1 || p.Bytes.Resync != 0 {
		t.Errorf("9 is missing, and nothing is in no frame: %+v, %+v", p.Frames, p.Bytes)
	}
}
