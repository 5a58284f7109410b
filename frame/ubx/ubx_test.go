package ubx_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/ubx"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Messages as manuals and standards print them.
var (
	pollVersion = unhex("B5 62 0A 04 00 00 0E 34")                         // UBX-MON-VER, polled
	rate5Hz     = unhex("B5 62 06 08 06 00 C8 00 01 00 01 00 DE 6A")       // UBX-CFG-RATE
	ggaOff      = unhex("B5 62 06 01 08 00 F0 00 00 00 00 00 00 01 00 24") // UBX-CFG-MSG
	ack         = unhex("B5 62 05 01 02 00 06 01 0F 38")                   // UBX-ACK-ACK of UBX-CFG-MSG
	nak         = unhex("B5 62 05 00 02 00 06 01 0E 33")                   // UBX-ACK-NAK of UBX-CFG-MSG
	gga         = []byte("$GPGGA,092750.000,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*76\r\n")
	gll         = []byte("$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n")
	aivdm       = []byte("!AIVDM,1,1,,B,177KQJ5000G?tO`K>RA1wUbN0TKH,0*5C\r\n")
	rtcm1005    = unhex("D3 00 13 3E D7 D3 02 02 98 0E DE EF 34 B4 BD 62 AC 09 41 98 6F 33 36 0B 98")
	rtcm1029    = unhex("D3 00 27 40 50 17 00 84 73 6E 15 1E 55 54 46 2D 38 20 D0 BF D1 80 D0 BE D0 B2 D0 B5 D1 80 D0 BA D0 B0" +
		" 20 77 C3 B6 72 74 65 72 ED A3 3B")
)

func TestMessagesOfTheManuals(t *testing.T) {
	for _, c := range []struct {
		kind ubx.Kind
		data []byte
	}{
		{ubx.UBX, pollVersion},
		{ubx.UBX, rate5Hz},
		{ubx.UBX, ggaOff},
		{ubx.UBX, ack},
		{ubx.UBX, nak},
		{ubx.NMEA, gga},
		{ubx.NMEA, gll},
		{ubx.NMEA, aivdm},
		{ubx.RTCM, rtcm1005},
		{ubx.RTCM, rtcm1029},
	} {
		r, err := frametest.Feed(ubx.New(0), c.data, nil)
		if err != nil || len(r.Frames) != 1 || r.Harm != 0 || len(r.Skipped) != 0 {
			t.Errorf("% X: %d frames, %d damaged, %d skipped, %v", c.data, len(r.Frames), r.Harm, len(r.Skipped), err)
		}
		if got := ubx.KindOf(c.data); got != c.kind {
			t.Errorf("% X is %v, want %v", c.data, got, c.kind)
		}
	}
	if got := ubx.Append(nil, 0x06, 0x08, []byte{0xC8, 0, 1, 0, 1, 0}); !bytes.Equal(got, rate5Hz) {
		t.Errorf("Append gives % X, want % X", got, rate5Hz)
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// with is b with one byte changed.
func with(b []byte, at int, to byte) []byte {
	b = bytes.Clone(b)
	b[at] = to
	return b
}

func TestResync(t *testing.T) {
	inside := ubx.Append(nil, 0x21, 0x0E, join([]byte("text "), gll, ack)) // messages in a payload
	for name, c := range map[string]struct {
		stream           []byte
		frames           [][]byte
		damaged, skipped int
	}{
		"three kinds mixed": {
			join(gga, ack, rtcm1005, gll, nak),
			[][]byte{gga, ack, rtcm1005, gll, nak},
			0, 0,
		},
		"messages in a payload": {join(inside, ack), [][]byte{inside, ack}, 0, 0},
		"… of a message that is damaged": {
			join(with(inside, 7, 0), nak),
			[][]byte{gll, ack, nak},
			1,
			len(inside) - len(gll) - len(ack),
		},
		"a false start": {
			join(unhex("B5 62 01 07 5C 00"), gga, ack, gll),
			[][]byte{gga, ack, gll},
			1,
			6,
		},
		"a false start of RTCM":         {join(unhex("D3 00 40 3E D0"), gga, ack, gll), [][]byte{gga, ack, gll}, 1, 5},
		"a false start longer than Max": {join(unhex("B5 62 01 07 FF FF"), ack), [][]byte{ack}, 1, 6},
		"a false start of a sentence":   {join([]byte("$GPGG"), ack, gll), [][]byte{ack, gll}, 1, 5},
		"one glued to another":          {join(gga[:20], gll), [][]byte{gll}, 1, 20},
		"a length that is wrong": {
			join(with(rate5Hz, 4, 30), ack, gga, nak),
			[][]byte{ack, gga, nak},
			1,
			len(rate5Hz),
		},
		"a wrong sum of each kind": {
			join(with(ack, 9, 0), with(gll, 46, '9'), with(rtcm1005, 24, 0), ggaOff),
			[][]byte{ggaOff},
			3, len(ack) + len(gll) + len(rtcm1005),
		},
		"a sentence without a sum": {join([]byte("$GPGLL,1,2\r\n"), gll), [][]byte{gll}, 1, 12},
		"a line feed alone": {
			bytes.ReplaceAll(gll, []byte("\r"), nil),
			[][]byte{bytes.ReplaceAll(gll, []byte("\r"), nil)},
			0, 0,
		},
		"a carriage return alone":         {join(gll[:len(gll)-1], ack), [][]byte{ack}, 1, len(gll) - 1},
		"a character that is none":        {join(with(gll, 9, 0x80), gll), [][]byte{gll}, 1, len(gll)},
		"text and prices":                 {[]byte("u-blox AG $5, $66.10!\r\n"), nil, 0, 23},
		"synchronisation bytes that lack": {join(ack[1:], nak), [][]byte{nak}, 0, 9},
		"two synchronisation bytes more":  {join(ack[:1], ack[:2], ack), [][]byte{ack}, 1, 3},
		"a payload of nothing":            {pollVersion, [][]byte{pollVersion}, 0, 0},
		"cut at the end":                  {join(gll, rate5Hz[:9]), [][]byte{gll}, 1, 9},
		"cut, with a whole one behind":    {join(rate5Hz[:9], gll), [][]byte{gll}, 1, 9},
	} {
		for seed := range uint64(20) {
			r, err := frametest.Feed(ubx.New(0), c.stream, rand.New(rand.NewPCG(seed, 3)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !slices.EqualFunc(r.Frames, c.frames, bytes.Equal) || r.Harm != c.damaged ||
				len(r.Skipped) != c.skipped {
				t.Fatalf("%s: frames %q, %d damaged, %d skipped; want %q, %d, %d",
					name, r.Frames, r.Harm, len(r.Skipped), c.frames, c.damaged, c.skipped)
			}
		}
	}
}

// A message has an end: a sentence there needs no line feed, and what is cut stays cut.
func TestDatagrams(t *testing.T) {
	for _, c := range []struct {
		datagram []byte
		frames   int
		skipped  int
	}{
		{gll[:len(gll)-2], 1, 0},
		{gll[:len(gll)-1], 1, 0},
		{gll[:len(gll)-3], 0, len(gll) - 3},
		{join(ack, gll[:len(gll)-2]), 2, 0},
		{ack[:9], 0, 9},
	} {
		var r frametest.Record
		d := ubx.New(0)
		d.Break(c.datagram, frame.Message, &r)
		if len(r.Frames) != c.frames || len(r.Skipped) != c.skipped {
			t.Errorf("%q: %d frames, %d skipped; want %d, %d", c.datagram, len(r.Frames), len(r.Skipped), c.frames,
				c.skipped)
		}
	}
}

// A false start in noise holds whole frames up no longer than to the next silence, and a frame that
// a silence cuts in two is not given up.
func TestSilences(t *testing.T) {
	false1 := unhex("B5 62 01 07 00 10") // a message of 4 KiB
	var r frametest.Record
	d := ubx.New(0)
	stream := join(false1, ack, gga, gll[:10])
	done := d.Decode(stream, &r)
	if done += d.Pause(stream[done:], &r); done != 0 {
		t.Fatalf("%d bytes are classified before the last frame is whole", done)
	}
	stream = join(stream, gll[10:])
	done += d.Decode(stream[done:], &r)
	if done += d.Pause(stream[done:], &r); done != len(stream) || len(r.Frames) != 3 || r.Harm != 1 ||
		len(r.Skipped) != len(false1) {
		t.Errorf("%d of %d bytes, %d frames, %d damaged, %d skipped", done, len(stream), len(r.Frames), r.Harm,
			len(r.Skipped))
	}

	long := ubx.Append(nil, 1, 7, bytes.Repeat([]byte{0xB5, 0x62, '$', 0xD3, 0}, 100))
	r, d, done = frametest.Record{}, ubx.New(0), 0
	for n := range len(long) + 1 {
		done += d.Decode(long[done:n], &r)
		done += d.Pause(long[done:n], &r)
	}
	if len(r.Frames) != 1 || len(r.Skipped) != 0 {
		t.Errorf("a silence behind each byte: %d frames, %d bytes skipped", len(r.Frames), len(r.Skipped))
	}
}

// oracle cuts a whole stream by the rules alone, slowly, with sums of its own.
func oracle(b []byte, most int) (frames [][]byte, skipped []byte) {
	for len(b) > 0 {
		n := oracleFront(b)
		if n == 0 || n > most {
			skipped = append(skipped, b[0])
			b = b[1:]
			continue
		}
		frames = append(frames, b[:n])
		b = b[n:]
	}
	return frames, skipped
}

func oracleFront(b []byte) int {
	switch {
	case len(b) >= 8 && b[0] == 0xB5 && b[1] == 0x62:
		n := 8 + int(b[4]) + 256*int(b[5])
		if n > len(b) {
			return 0
		}
		var x, y uint8
		for _, c := range b[2 : n-2] {
			x += c
			y += x
		}
		if x == b[n-2] && y == b[n-1] {
			return n
		}
	case len(b) >= 6 && b[0] == 0xD3 && b[1] < 4:
		n := 6 + 256*int(b[1]) + int(b[2])
		if n <= len(b) && bitwise24(b[:n-3]) == uint32(b[n-3])<<16|uint32(b[n-2])<<8|uint32(b[n-1]) {
			return n
		}
	case b[0] == '$' || b[0] == '!':
		i := bytes.IndexByte(b, '\n')
		if i < 0 || i >= 1024 {
			return 0
		}
		body := bytes.TrimSuffix(b[:i], []byte("\r"))
		if bytes.ContainsFunc(body, func(r rune) bool { return r < ' ' || r > '~' }) || len(body) < 4 {
			return 0
		}
		var sum byte
		for _, c := range body[1 : len(body)-3] {
			sum ^= c
		}
		if strings.EqualFold(fmt.Sprintf("*%02X", sum), string(body[len(body)-3:])) {
			return i + 1
		}
	}
	return 0
}

// bitwise24 is CRC-24Q, one bit at a time.
func bitwise24(b []byte) (crc uint32) {
	for _, c := range b {
		for bit := 7; bit >= 0; bit-- {
			top := crc>>23&1 ^ uint32(c)>>bit&1
			crc = crc << 1 & 0xFFFFFF
			if top == 1 {
				crc ^= 0x864CFB
			}
		}
	}
	return crc
}

// traffic makes a message of each kind at random; in many payloads are starts, and whole messages.
func traffic(rng *rand.Rand) []byte {
	payload := make([]byte, rng.IntN(1+rng.IntN(900)))
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	for range rng.IntN(4) {
		put := [][]byte{
			{0xB5, 0x62},
			{0xB5, 0x62, 1, 7, 92, 0},
			{'$'},
			[]byte("$GPGGA,"),
			{0xD3, 0, 19},
			ack, gll,
			rtcm1005,
		}[rng.IntN(8)]
		copy(payload[rng.IntN(len(payload)+1):], put)
	}
	switch rng.IntN(3) {
	case 0:
		return ubx.Append(nil, byte(rng.Uint32()), byte(rng.Uint32()), payload)
	case 1:
		b := append([]byte{0xD3, byte(len(payload) >> 8), byte(len(payload))}, payload...)
		crc := bitwise24(b)
		return append(b, byte(crc>>16), byte(crc>>8), byte(crc))
	}
	return bytes.Clone([][]byte{gga, gll, aivdm}[rng.IntN(3)])
}

// Whatever is damaged, cut, merged and split: the frames are those that the rules alone find in the
// whole.
func TestAgainstOracle(t *testing.T) {
	most := uint64(60)
	if testing.Short() {
		most = 15
	}
	for seed := range most {
		rng := rand.New(rand.NewPCG(seed, 5))
		var stream []byte
		for range 40 {
			f := traffic(rng)
			switch rng.IntN(8) {
			case 0:
				f = f[:rng.IntN(len(f))]
			case 1:
				f[rng.IntN(len(f))] ^= 1 << rng.IntN(8)
			case 2:
				f = slices.Delete(f, len(f)/2, len(f)/2+1+rng.IntN(len(f)-len(f)/2))
			case 3:
				f = f[rng.IntN(len(f)):]
			}
			stream = append(stream, f...)
		}
		size := []int{0, 64, 300}[seed%3]
		open := func() frame.Decoder { return ubx.New(size) }
		if err := frametest.Check(open, stream, seed); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		frames, skipped := oracle(stream, open().Max())
		r, err := frametest.Feed(open(), stream, rng)
		if err != nil || !slices.EqualFunc(r.Frames, frames, bytes.Equal) || !bytes.Equal(r.Skipped, skipped) {
			t.Fatalf("seed %d: %d frames, %d bytes skipped; the oracle has %d, %d; %v",
				seed, len(r.Frames), len(r.Skipped), len(frames), len(skipped), err)
		}
	}
}

// One damaged byte costs one frame.
func TestOneDamagedByte(t *testing.T) {
	parts := [][]byte{gga, ack, rtcm1005, gll, rate5Hz, rtcm1029, aivdm, nak}
	stream := join(parts...)
	for at := range stream {
		for _, flip := range []byte{1, 0x10, 0x80, 0xFF} {
			r, err := frametest.Feed(ubx.New(0), with(stream, at, stream[at]^flip), nil)
			if err != nil || len(r.Frames) != len(parts)-1 {
				t.Errorf("byte %d changed by %#x: %d frames of %d, %v", at, flip, len(r.Frames), len(parts), err)
			}
		}
	}
}

func TestStateThatIsNone(t *testing.T) {
	for _, b := range [][]byte{nil, {1}, {2, 0, 0}, {1, 0, 0, 0}} {
		if ubx.New(0).Restore(b) == nil {
			t.Errorf("% X is taken as a state", b)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 1<<16)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	navPVT := ubx.Append(nil, 1, 7, noise[:92])
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"UBX-100-bytes", bytes.Repeat(navPVT, 512)},
		{"NMEA", bytes.Repeat(gga, 512)},
		{"RTCM", bytes.Repeat(rtcm1029, 512)},
		{"noise", noise},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := ubx.New(0)
			b.SetBytes(int64(len(c.data)))
			for b.Loop() {
				d.Decode(c.data, counter{})
			}
		})
	}
}

type counter struct{}

func (counter) Frame(*frame.Frame) {}
func (counter) Damaged()           {}
func (counter) Skip([]byte)        {}

// printer says what it is told.
type printer struct{}

func (printer) Frame(f *frame.Frame) { fmt.Println(ubx.KindOf(f.Data), len(f.Data), "bytes") }
func (printer) Damaged()             { fmt.Println("damaged") }
func (printer) Skip(b []byte)        { fmt.Println("skip", len(b), "bytes") }

func Example() {
	stream := []byte("$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n")
	stream = ubx.Append(stream, 0x05, 0x01, []byte{0x06, 0x01}) // UBX-ACK-ACK
	stream = append(stream, "$GPGLL,5300.97914,N,00259.98174,E,125926,A*29\r\n"...)
	stream = append(stream, stream[:20]...) // the rest has not come yet

	d := ubx.New(0)
	pending := stream[d.Decode(stream, printer{}):]
	fmt.Println("pending", len(pending))
	// Output:
	// NMEA 47 bytes
	// UBX 10 bytes
	// damaged
	// skip 47 bytes
	// pending 20
}
