package detect_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/cobs"
	"github.com/tallywheel/tallywheel/frame/detect"
	"github.com/tallywheel/tallywheel/frame/slip"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/frame/ubx"
)

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func modbusSum(content []byte) []byte {
	return binary.LittleEndian.AppendUint16(content, crc16.Modbus(content))
}

func ccittSum(content []byte) []byte {
	return binary.BigEndian.AppendUint16(content, crc16.CCITT(content))
}

func sentence(rng *rand.Rand) []byte {
	body := fmt.Sprintf("GPGLL,%d.%d,N,%d", rng.IntN(9000), rng.IntN(90), rng.IntN(100))
	var sum byte
	for i := range len(body) {
		sum ^= body[i]
	}
	return fmt.Appendf(nil, "$%s*%02X\r\n", body, sum)
}

// talk is the n-th message of what devices say.
type talk func(rng *rand.Rand, n int) []byte

// prefixed makes messages that begin with their length.
func prefixed(size int, little, inclusive bool, sum func([]byte) []byte) talk {
	return func(rng *rand.Rand, _ int) []byte {
		most := 500
		if size == 1 {
			most = 250
		}
		c := noise(rng, 1+rng.IntN(most))
		if sum != nil {
			c = sum(c)
		}
		n := uint32(len(c))
		if inclusive {
			n += uint32(size)
		}
		if little {
			return append(binary.LittleEndian.AppendUint32(nil, n)[:size:size], c...)
		}
		return append(binary.BigEndian.AppendUint32(nil, n)[4-size:], c...)
	}
}

// poll is a master that reads registers and a device that answers.
func poll(rng *rand.Rand, n int) []byte {
	count := byte(1 + n%5)
	if n%2 == 0 {
		return modbusSum([]byte{byte(1 + n%3), 3, 0, byte(rng.IntN(100)), 0, count})
	}
	return modbusSum(append([]byte{byte(1 + n%3), 3, 2 * count}, noise(rng, 2*int(count))...))
}

// talks lists what is to be found, by the name of the framing that is right; "" is none.
func talks() map[string][]talk {
	return map[string][]talk{
		"tally128": {func(rng *rand.Rand, n int) []byte {
			b := make([]byte, tally128.Size)
			tally128.Encode(b, tally128.Header{Device: 7, Epoch: 1, Seq: uint64(n)}, noise(rng, rng.IntN(98)))
			return b
		}},
		"modbus":          {poll},
		"line,check=nmea": {func(rng *rand.Rand, _ int) []byte { return sentence(rng) }},
		"ubx":             {position},
		"cobs,check=modbus": {func(rng *rand.Rand,
			_ int,
		) []byte {
			return cobs.Encode(nil, modbusSum(noise(rng, 1+rng.IntN(300))))
		}},
		"slip,check=ccitt": {func(rng *rand.Rand,
			_ int,
		) []byte {
			return slip.Encode(nil, ccittSum(noise(rng, 1+rng.IntN(300))))
		}},
		"slip,check=modbus": {func(rng *rand.Rand, _ int) []byte {
			return slip.Encode([]byte{0xC0}, modbusSum(noise(rng, 1+rng.IntN(300))))
		}},
		"length,prefix=1,check=modbus":                              {prefixed(1, false, false, modbusSum)},
		"length,prefix=2,check=modbus":                              {prefixed(2, false, false, modbusSum)},
		"length,prefix=2,endian=little,check=ccitt":                 {prefixed(2, true, false, ccittSum)},
		"length,prefix=4,inclusive=true,check=ccitt":                {prefixed(4, false, true, ccittSum)},
		"length,prefix=4,endian=little,inclusive=true,check=modbus": {prefixed(4, true, true, modbusSum)},
		"cobs": {func(rng *rand.Rand, _ int) []byte { return cobs.Encode(nil, noise(rng, 3+rng.IntN(300))) }},
		"slip": {
			func(rng *rand.Rand, _ int) []byte { return slip.Encode([]byte{0xC0}, noise(rng, 3+rng.IntN(300))) },
			func(rng *rand.Rand, _ int) []byte { return slip.Encode(nil, noise(rng, 100+rng.IntN(300))) },
		},
		"line": {
			func(rng *rand.Rand, _ int) []byte { return fmt.Appendf(nil, "ST,GS,+%6.1f kg\r\n", rng.Float64()*1e4) },
			func(*rand.Rand, int) []byte { return []byte("ready\n") },
			func(rng *rand.Rand, n int) []byte { // one line of four is a sentence
				if n%4 == 0 {
					return sentence(rng)
				}
				return []byte(strings.Repeat("°C ", rng.IntN(20)) + "\r\n")
			},
		},
		"": {
			noise100,
			prefixed(2, false, false, nil), // no check, no evidence
			func(*rand.Rand, int) []byte { return modbusSum([]byte{1, 3, 0, 0, 0, 10}) }, // one coincidence
			func(*rand.Rand, int) []byte { return []byte{0xFF, 0xFF, 0, 0} },
			func(rng *rand.Rand, _ int) []byte { return []byte{0x00, 0xFF, 0xF8, 0x80}[rng.IntN(4):] },
			func(_ *rand.Rand, n int) []byte { return []byte{byte(n), 0, 0xC0, byte(n >> 8)} }, // a counter
			func(_ *rand.Rand, n int) []byte { return []byte{1, 1, byte(n % 2), 0} },
			func(_ *rand.Rand, n int) []byte { return make([]byte, 10) },
		},
	}
}

func noise100(rng *rand.Rand, _ int) []byte { return noise(rng, 100) }

// position is a receiver that mixes messages and sentences.
func position(rng *rand.Rand, n int) []byte {
	if n%3 == 0 {
		return sentence(rng)
	}
	return ubx.Append(nil, 1, byte(n), noise(rng, 1+rng.IntN(100)))
}

// TestRightOrUndecided shows traffic of each framing, from any place in it, cut anywhere, with and
// without damage: at no moment may a wrong framing win, and the right one wins in the end.
func TestRightOrUndecided(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for want, all := range talks() {
		for i, say := range all {
			t.Run(fmt.Sprintf("%s_%d", want, i), func(t *testing.T) {
				for seed := range rounds {
					one(t, want, say, uint64(seed))
				}
			})
		}
	}
}

func one(t *testing.T, want string, say talk, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	d := detect.New([]int{0, 9600, 115200}[seed%3], 10)
	damage := []int{0, 30}[seed%2]
	pauses := seed%4 < 2 // the line is silent behind each message, or never
	first := true
	var last detect.Fit
	decided := false
	for n := range 150 {
		b := say(rng, n)
		if first && seed%3 > 0 && len(b) > 2 { // the listener came in the middle
			b = b[rng.IntN(len(b)):]
		}
		first = false
		if damage > 0 && rng.IntN(damage) == 0 {
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		}
		for len(b) > 0 {
			k := 1 + rng.IntN(len(b))
			d.Bytes(b[:k])
			b = b[k:]
		}
		if pauses {
			d.Silence(20 * time.Millisecond)
			if n%2 == 0 { // and is told of again as it lasts
				d.Silence(2 * time.Second)
			}
		}
		f, ok := d.Decide()
		if ok {
			decided = true
			last = f
			if f.Framing.String() != want {
				t.Fatalf("seed %d: after message %d of %q: %v", seed, n, want, f)
			}
		}
	}
	if decided != (want != "") {
		leader, _ := d.Leader()
		t.Errorf("seed %d: decided is %v of %q at the end (last %v; leader %v)", seed, decided, want, last, leader)
	}
}

// SLIP that escapes nothing is known by its delimiters before the silences alone, however often it
// is said that one lasts.
func TestPausesDecide(t *testing.T) {
	for _, pauses := range []bool{true, false} {
		d := detect.New(9600, 10)
		for n := range 40 {
			d.Bytes(slip.Encode(nil, []byte{1, 2, byte(n), 0xA0}))
			if pauses {
				d.Silence(20 * time.Millisecond)
				d.Silence(2 * time.Second)
			}
		}
		if f, ok := d.Decide(); ok != pauses || ok && f.Framing.Kind != "slip" {
			t.Errorf("with pauses %v: %v, %v", pauses, f, ok)
		}
	}
}

// Noise of any amount stays undecided.
func TestNoiseIsUndecided(t *testing.T) {
	size := 1 << 20
	if testing.Short() {
		size = 1 << 17
	}
	rng := rand.New(rand.NewPCG(3, 3))
	d := detect.New(9600, 10)
	for seen := 0; seen < size; seen += 500 {
		d.Bytes(noise(rng, 500))
		d.Silence(time.Duration(rng.IntN(2000)) * time.Millisecond)
		if f, ok := d.Decide(); ok {
			t.Fatalf("after %d bytes of noise: %v", seen, f)
		}
	}
	if d.WrongRate() {
		t.Error("noise looks like a wrong rate")
	}
}

// Datagrams end messages, and lost bytes join nothing.
func TestMessagesAndLostBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := detect.New(0, 0)
	for n := range 40 {
		b := poll(rng, n)
		d.Bytes(b)
		d.Break(frame.Message)
		d.Bytes(poll(rng, n)[:3])
		d.Break(frame.Closed)
	}
	if leader, ok := d.Leader(); !ok || leader.Framing.Kind != "modbus" || leader.Share > 0.9 {
		t.Errorf("the leader is %v; want modbus, and the bytes that were cut off are not in frames", leader)
	}
}

func TestWrongRateIsSuspected(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	d := detect.New(9600, 10)
	for range 100 {
		d.Bytes([]byte{[]byte{0, 0xFF, 0xF8, 0x80, 0xFE, byte(rng.Uint32())}[rng.IntN(6)]})
	}
	if !d.WrongRate() {
		t.Error("bytes as of a line at another rate are not noticed")
	}
}

func TestReasonsAreSaid(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := detect.New(9600, 10)
	for n := range 4 {
		d.Bytes(poll(rng, n))
	}
	f, ok := d.Decide()
	if got, want := f.String(),
		"modbus: 4 frames with a right check value, 100 % of the bytes, 64 bits of evidence"; !ok || got != want {
		t.Errorf("%q, %v; want %q", got, ok, want)
	}
}
