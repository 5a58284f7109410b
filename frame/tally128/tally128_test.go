package tally128_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/tally128"
)

func encoded(seq uint64, payload string) []byte {
	f := make([]byte, tally128.Size)
	tally128.Encode(f, tally128.Header{Flags: 3, Device: 0x01020304, Epoch: 5, Seq: seq, DeviceTime: 77},
		[]byte(payload))
	return f
}

// The bytes of a frame, as the package comment draws them, and its CRC from another implementation.
func TestLayout(t *testing.T) {
	f := encoded(0x1122334455667788, "payload")
	want := append([]byte{
		0xA5, 0x5A, 1, 3, 4, 3, 2, 1, 5, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 77,
		0, 0, 0, 0, 0, 0, 0,
	}, "payload"...)
	if !bytes.HasPrefix(f, want) {
		t.Errorf("frame begins % X, want % X", f[:len(want)], want)
	}
	crc := uint16(0xFFFF)
	for _, b := range f[:126] {
		crc ^= uint16(b)
		for range 8 {
			crc = crc>>1 ^ 0xA001*(crc&1)
		}
	}
	if f[126] != byte(crc) || f[127] != byte(crc>>8) {
		t.Errorf("CRC % X, want %#04x, low byte first", f[126:], crc)
	}
	h, ok := tally128.Parse(f)
	if !ok || h != (tally128.Header{Flags: 3, Device: 0x01020304, Epoch: 5, Seq: 0x1122334455667788, DeviceTime: 77}) {
		t.Errorf("parsed as %+v, %v", h, ok)
	}
}

func TestDamage(t *testing.T) {
	a, b, c := encoded(1, "a"), encoded(2, "b"), encoded(3, "c")
	falseSync := encoded(2, "\xA5\x5A\x01 looks like a frame") // inside a frame that is damaged elsewhere
	falseSync[100] ^= 1
	for name, s := range map[string]struct {
		stream  [][]byte
		numbers []uint64
		damaged int
		skipped int
	}{
		"clean":      {[][]byte{a, b, c}, []uint64{1, 2, 3}, 0, 0},
		"bytes lost": {[][]byte{a, b[:60], b[63:], c}, []uint64{1, 3}, 1, 125},
		"bytes lost in two in a row": {[][]byte{
			a, b[:60], b[63:], encoded(3, "x")[:60], encoded(3, "x")[70:],
			encoded(4, "d"),
		}, []uint64{1, 4}, 2, 243},
		"a false sync inside damage":  {[][]byte{a, falseSync, c}, []uint64{1, 3}, 1, 128},
		"sync destroyed":              {[][]byte{a, {0}, b[1:], c}, []uint64{1, 3}, 0, 128},
		"noise between":               {[][]byte{a, []byte("noise \xA5\x5A noise"), b}, []uint64{1, 2}, 0, 14},
		"a true frame in a false one": {[][]byte{{0xA5, 0x5A, 1, 9, 9}, a, b}, []uint64{1, 2}, 1, 5},
		"truncated at the end":        {[][]byte{a, b[:100]}, []uint64{1}, 1, 100},
	} {
		r, err := frametest.Feed(&tally128.Decoder{}, bytes.Join(s.stream, nil), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if fmt.Sprint(r.Numbers) != fmt.Sprint(s.numbers) || r.Harm != s.damaged || len(r.Skipped) != s.skipped {
			t.Errorf("%s: frames %v, %d damaged, %d bytes skipped; want %v, %d, %d",
				name, r.Numbers, r.Harm, len(r.Skipped), s.numbers, s.damaged, s.skipped)
		}
	}
}

// What was cut off by a break hides nothing that is damaged behind it.
func TestDamageBehindABreak(t *testing.T) {
	cut, damaged := encoded(1, "a")[:20], encoded(900_000, "b")
	damaged[40] ^= 1
	var d tally128.Decoder
	var r frametest.Record
	for _, message := range [][]byte{cut, damaged} {
		done := d.Decode(message, &r)
		d.Break(message[done:], frame.Message, &r)
	}
	if r.Harm != 2 {
		t.Errorf("%d damaged frames are counted, want 2", r.Harm)
	}
}

func TestNumber(t *testing.T) {
	var d tally128.Decoder
	f, ok := d.Number(encoded(9, "x"))
	if !ok || !f.Sequenced || f.Device != 0x01020304 || f.Epoch != 5 || f.Seq != 9 || f.DeviceTime != 77 {
		t.Errorf("Number gives %+v, %v", f, ok)
	}
	if f, ok := d.Number([]byte("no frame")); ok || f.Sequenced {
		t.Errorf("Number takes what is no frame: %+v", f)
	}
}

// printer is the simplest sink.
type printer struct{}

func (printer) Frame(f *frame.Frame) { fmt.Println("frame", f.Seq, "of device", f.Device) }
func (printer) Damaged()             { fmt.Println("damaged") }
func (printer) Skip(b []byte)        { fmt.Println("skip", len(b), "bytes") }

func Example() {
	var stream []byte
	for n := range uint64(3) {
		f := make([]byte, tally128.Size)
		tally128.Encode(f, tally128.Header{Device: 7, Seq: n}, []byte("20.5 °C"))
		stream = append(stream, f...)
	}
	stream[200] ^= 1 // a bit of the second frame

	var d tally128.Decoder
	pending := stream[d.Decode(stream, printer{}):]
	fmt.Println("pending", len(pending))
	// Output:
	// frame 0 of device 7
	// damaged
	// skip 128 bytes
	// frame 2 of device 7
	// pending 0
}
