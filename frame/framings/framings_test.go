package framings

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/cobs"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/slip"
	"github.com/tallywheel/tallywheel/frame/tally128"
)

// sample is one framing with a way to make its n-th valid frame.
type sample struct {
	cfg  Config
	make func(rng *rand.Rand, n int) []byte
}

func (s sample) open(t testing.TB) func() frame.Decoder {
	return func() frame.Decoder {
		d, err := New(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func sealed(content []byte) []byte {
	return binary.LittleEndian.AppendUint16(content, crc16.Modbus(content))
}

func samples() map[string]sample {
	return map[string]sample{
		"tally128": {Config{Kind: "tally128"}, func(rng *rand.Rand, n int) []byte {
			b := make([]byte, tally128.Size)
			tally128.Encode(b, tally128.Header{Device: 7, Epoch: 1, Seq: uint64(n)}, noise(rng, tally128.PayloadSize))
			return b
		}},
		"cobs": {Config{Kind: "cobs", Check: frame.CheckModbus}, func(rng *rand.Rand, _ int) []byte {
			return cobs.Encode(nil, sealed(noise(rng, rng.IntN(600))))
		}},
		"slip": {Config{Kind: "slip", Check: frame.CheckModbus}, func(rng *rand.Rand, _ int) []byte {
			return slip.Encode([]byte{0xC0}, sealed(noise(rng, rng.IntN(600))))
		}},
		"line": {Config{Kind: "line"}, func(rng *rand.Rand, n int) []byte {
			if n%2 == 0 {
				return []byte(strings.Repeat("x", rng.IntN(80)) + "\r\n")
			}
			body := fmt.Sprintf("GPGLL,%d.%d,N", rng.IntN(9000), rng.IntN(90))
			var sum byte
			for i := range len(body) {
				sum ^= body[i]
			}
			return fmt.Appendf(nil, "$%s*%02X\r\n", body, sum)
		}},
		"length": {Config{Kind: "length", Check: frame.CheckModbus}, func(rng *rand.Rand, _ int) []byte {
			c := sealed(noise(rng, rng.IntN(300)))
			return append(binary.BigEndian.AppendUint16(nil, uint16(len(c))), c...)
		}},
		"raw": {Config{Kind: "raw"}, func(rng *rand.Rand, _ int) []byte { return noise(rng, 1024) }},
		"modbus": {Config{Kind: "modbus", Baud: 9600}, func(rng *rand.Rand, _ int) []byte {
			return sealed(append([]byte{1, 3}, noise(rng, 6)...))
		}},
	}
}

func TestEveryNameOpens(t *testing.T) {
	for _, name := range Names() {
		s, ok := samples()[name]
		if !ok {
			t.Errorf("%s has no sample in this test", name)
			continue
		}
		s.open(t)()
	}
}

func TestCleanStreamIsAllFrames(t *testing.T) {
	for name, s := range samples() {
		if name == "modbus" { // cut by silence, which one stream does not have: see its own test
			continue
		}
		rng := rand.New(rand.NewPCG(3, 4))
		var stream []byte
		var want [][]byte
		for n := range 300 {
			f := s.make(rng, n)
			want, stream = append(want, f), append(stream, f...)
		}
		r, err := frametest.Feed(s.open(t)(), stream, rng)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.Skipped) != 0 || r.Harm != 0 || len(r.Frames) != len(want) {
			t.Errorf("%s: %d frames, %d bytes skipped, %d damaged; want %d, 0, 0", name, len(r.Frames), len(r.Skipped), r.Harm, len(want))
			continue
		}
		for i := range want {
			if !bytes.Equal(r.Frames[i], want[i]) {
				t.Errorf("%s: frame %d differs from what was sent", name, i)
				break
			}
		}
	}
}

// Frames amid noise, truncated and run together: the rules of frametest.Check hold for every cut.
func TestDamagedStreamKeepsEveryRule(t *testing.T) {
	for name, s := range samples() {
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 9))
			var stream []byte
			for n := range 40 {
				f := s.make(rng, n)
				switch rng.IntN(6) {
				case 0:
					f = f[:rng.IntN(len(f))]
				case 1:
					f[rng.IntN(len(f))] ^= 1 << rng.IntN(8)
				case 2:
					stream = append(stream, noise(rng, rng.IntN(200))...)
				}
				stream = append(stream, f...)
			}
			if err := frametest.Check(s.open(t), stream, seed); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed, err)
			}
		}
	}
}

func TestMillionRandomBytes(t *testing.T) {
	stream := noise(rand.New(rand.NewPCG(5, 6)), 1_000_000)
	for name, s := range samples() {
		if err := frametest.Check(s.open(t), stream, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoAllocationPerFrame(t *testing.T) {
	for name, s := range samples() {
		rng := rand.New(rand.NewPCG(7, 8))
		var stream []byte
		for n := range 50 {
			stream = append(stream, s.make(rng, n)...)
		}
		d, sink := s.open(t)(), &counter{}
		if n := testing.AllocsPerRun(20, func() {
			at := d.Decode(stream, sink)
			d.Break(stream[at:], frame.Closed, sink)
		}); n != 0 {
			t.Errorf("%s: %v allocations for 50 frames, want none", name, n)
		}
	}
}

func TestSettingsThatDoNotFitAreNamed(t *testing.T) {
	for want, cfg := range map[string]Config{
		"want one of":                 {Kind: "tally129"},
		"max is a setting of":         {Kind: "tally128", Max: 100},
		"gap is a setting of raw":     {Kind: "line", Gap: 1},
		"prefix 3: want 1, 2 or 4":    {Kind: "length", Prefix: 3},
		"want 8 to 16384 bytes":       {Kind: "line", Max: 1 << 20},
		"check is a setting of cobs":  {Kind: "raw", Check: frame.CheckCCITT},
		"endian is a setting of leng": {Kind: "slip", Little: true},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): error %v, want one with %q", cfg, err, want)
		}
	}
}

type counter struct{ frames, damaged, skipped int }

func (c *counter) Frame(*frame.Frame) { c.frames++ }
func (c *counter) Damaged()           { c.damaged++ }
func (c *counter) Skip(b []byte)      { c.skipped += len(b) }

func FuzzTally128(f *testing.F) { fuzz(f, "tally128") }
func FuzzModbus(f *testing.F)   { fuzz(f, "modbus") }
func FuzzCOBS(f *testing.F)     { fuzz(f, "cobs") }
func FuzzSLIP(f *testing.F)     { fuzz(f, "slip") }
func FuzzLine(f *testing.F)     { fuzz(f, "line") }
func FuzzLength(f *testing.F)   { fuzz(f, "length") }
func FuzzRaw(f *testing.F)      { fuzz(f, "raw") }

func fuzz(f *testing.F, name string) {
	s := samples()[name]
	rng := rand.New(rand.NewPCG(1, 1))
	f.Add(append(s.make(rng, 0), s.make(rng, 1)...), uint64(1))
	f.Add(append(s.make(rng, 2)[1:], s.make(rng, 3)...), uint64(2))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		if err := frametest.Check(s.open(t), stream, seed); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkDecodeTally128(b *testing.B) {
	s := samples()["tally128"]
	rng := rand.New(rand.NewPCG(1, 1))
	var stream []byte
	for n := range 512 {
		stream = append(stream, s.make(rng, n)...)
	}
	benchDecode(b, stream, tally128.Size)
}

// Noise must not slow a reader down: the bar is 1 GB/s.
func BenchmarkDecodeNoise(b *testing.B) {
	benchDecode(b, noise(rand.New(rand.NewPCG(1, 1)), 1<<16), 0)
}

func benchDecode(b *testing.B, stream []byte, size int) {
	var d tally128.Decoder
	var sink counter
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		d.Decode(stream, &sink)
	}
	if size > 0 {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(stream)/size), "ns/frame")
	}
}
