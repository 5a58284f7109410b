package modbus_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/modbus"
)

func sealed(b ...byte) []byte {
	crc := crc16.Modbus(b)
	return append(b, byte(crc), byte(crc>>8))
}

func TestSilence(t *testing.T) {
	for _, c := range []struct {
		baud, bits int
		want       time.Duration
	}{
		{9600, 11, 4010416 * time.Nanosecond},
		{19200, 10, 1822916 * time.Nanosecond},
		{38400, 11, 1750 * time.Microsecond},
		{0, 0, 1750 * time.Microsecond},
	} {
		if got := modbus.T35(c.baud, c.bits); got != c.want {
			t.Errorf("T35(%d, %d) = %v, want %v", c.baud, c.bits, got, c.want)
		}
	}
}

// A frame in which the line is silent for longer than Patience counts as two that came damaged.
// That the second part is the rest of the first is not known: it may be another frame's.
func TestPauseInFrame(t *testing.T) {
	request, response := sealed(1, 3, 0, 0, 0, 2), sealed(1, 3, 4, 0, 9, 0, 8)
	for cut := 1; cut < len(request); cut++ {
		var r frametest.Record
		d := modbus.New(9600, 11)
		for _, part := range [][]byte{request[:cut], request[cut:]} {
			done := d.Decode(part, &r)
			done += d.Pause(part[done:], &r)
			d.Break(part[done:], frame.Silence, &r)
		}
		d.Break(response[d.Decode(response, &r):], frame.Silence, &r)
		if r.Harm != 2 || len(r.Frames) != 1 || !bytes.Equal(r.Skipped, request) {
			t.Errorf("a pause behind %d bytes: %d damaged, %d frames, % X skipped", cut, r.Harm, len(r.Frames), r.Skipped)
		}
	}
}

// What a bus shows between two silences.
func TestChunks(t *testing.T) {
	request, response := sealed(1, 3, 0, 0, 0, 2), sealed(1, 3, 4, 0, 9, 0, 8)
	exception := sealed(1, 0x83, 2)
	broken := sealed(1, 3, 0, 0, 0, 2)
	broken[3] ^= 0x10
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, c := range map[string]struct {
		chunk                    []byte
		frames, damaged, skipped int
	}{
		"a request":                    {request, 1, 0, 0},
		"an exception":                 {exception, 1, 0, 0},
		"request and response as one":  {join(request, response), 2, 0, 0},
		"noise before a response":      {join([]byte{0xFF, 0x00}, response), 1, 1, 2},
		"a wrong CRC":                  {broken, 0, 1, len(broken)},
		"a wrong CRC, then a response": {join(broken, response), 1, 1, len(broken)},
		"too short":                    {[]byte{1, 2, 3}, 0, 1, 3},
	} {
		d := modbus.New(9600, 11)
		var r frametest.Record
		done := d.Decode(c.chunk, &r)
		d.Break(c.chunk[done:], frame.Silence, &r)
		if len(r.Frames) != c.frames || r.Harm != c.damaged || len(r.Skipped) != c.skipped {
			t.Errorf("%s: %d frames, %d damaged, %d skipped; want %d, %d, %d",
				name, len(r.Frames), r.Harm, len(r.Skipped), c.frames, c.damaged, c.skipped)
		}
	}
}

// traffic makes n exchanges of a master with its units, as the specification has them; many CRCs
// end in 0.
func traffic(rng *rand.Rand, n int) (all [][]byte) {
	word := func(v int) []byte { return []byte{byte(v >> 8), byte(v)} }
	data := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			if rng.IntN(3) > 0 {
				b[i] = byte(rng.Uint32())
			}
		}
		return b
	}
	put := func(make func() []byte) {
		b := sealed(make()...)
		if rng.IntN(3) == 0 {
			for try := 0; try < 400 && b[len(b)-1] != 0; try++ {
				b = sealed(make()...)
			}
		}
		all = append(all, b)
	}
	for range n {
		unit, at := byte(rng.IntN(5)), word(rng.IntN(0x700))
		coils, registers, writes := 1+rng.IntN(200), 1+rng.IntN(125), 1+rng.IntN(100)
		if rng.IntN(2) == 0 {
			coils, registers, writes = 1+rng.IntN(32), 1+rng.IntN(4), 1+rng.IntN(4)
		}
		head := func(fc byte, parts ...[]byte) []byte { return append([]byte{unit, fc}, bytes.Join(parts, nil)...) }
		var request, answer func() []byte
		fc := []byte{5, 6, 15, 16, 22, 1, 2, 3, 3, 3, 4, 23, 7, 8, 11, 12, 17, 20, 21, 24, 43, 43}[rng.IntN(22)]
		if unit == 0 { // to all units: only what is written
			fc = []byte{5, 6, 15, 16, 22}[rng.IntN(5)]
		}
		switch fc {
		case 1, 2:
			size := (coils + 7) / 8
			request = func() []byte { return head(fc, at, word(coils)) }
			answer = func() []byte { return head(fc, []byte{byte(size)}, data(size)) }
		case 3, 4:
			request = func() []byte { return head(fc, at, word(registers)) }
			answer = func() []byte { return head(fc, []byte{byte(2 * registers)}, data(2*registers)) }
		case 5, 6:
			value := data(2)
			request = func() []byte { return head(fc, at, value) }
			answer = request
		case 15:
			request = func() []byte {
				return head(fc, at, word(coils), []byte{byte((coils + 7) / 8)}, data((coils+7)/8))
			}
			answer = func() []byte { return head(fc, at, word(coils)) }
		case 16:
			request = func() []byte { return head(fc, at, word(writes), []byte{byte(2 * writes)}, data(2*writes)) }
			answer = func() []byte { return head(fc, at, word(writes)) }
		case 22:
			masks := data(4)
			request = func() []byte { return head(fc, at, masks) }
			answer = request
		case 23:
			request = func() []byte {
				return head(fc, at, word(registers), at, word(writes), []byte{byte(2 * writes)}, data(2*writes))
			}
			answer = func() []byte { return head(fc, []byte{byte(2 * registers)}, data(2*registers)) }
		default:
			request, answer = rare(rng, head, fc, word, data)
		}
		put(request)
		for rng.IntN(8) == 0 { // no answer, and tried again
			all = append(all, all[len(all)-1])
		}
		switch last := all[len(all)-1]; {
		case last[0] == 0: // to all units
		case rng.IntN(10) == 0:
			all = append(all, sealed(unit, fc|0x80, byte(1+rng.IntN(4))))
		default:
			put(answer)
		}
	}
	return all
}

// rare makes a request and an answer of what few devices have.
func rare(rng *rand.Rand, head func(byte, ...[]byte) []byte, fc byte, word func(int) []byte,
	data func(int) []byte,
) (request, answer func() []byte) {
	with := func(parts ...[]byte) func() []byte { return func() []byte { return head(fc, parts...) } }
	counted := func(n int) func() []byte { return func() []byte { return head(fc, []byte{byte(n)}, data(n)) } }
	file := func(records bool) (all []byte) { // sub-requests of a file
		for range 1 + rng.IntN(4) {
			n := 1 + rng.IntN(12)
			all = append(append(append(all, 6), data(4)...), word(n)...)
			if records {
				all = append(all, data(2*n)...)
			}
		}
		return append([]byte{byte(len(all))}, all...)
	}
	switch fc {
	case 7:
		return with(), func() []byte { return head(fc, data(1)) }
	case 8:
		if sub := rng.IntN(20); sub > 0 {
			value := data(2)
			return with(word(sub), value), func() []byte { return head(fc, word(sub), data(2)) }
		}
		same := with(word(0), data(2))
		return same, same
	case 11:
		return with(), func() []byte { return head(fc, word(0xFFFF*rng.IntN(2)), data(2)) }
	case 12:
		return with(), counted(6 + rng.IntN(65))
	case 17:
		return with(), counted(2 + rng.IntN(40))
	case 20:
		return with(file(false)), func() []byte {
			var all []byte
			for range 1 + rng.IntN(4) {
				n := 2 * (1 + rng.IntN(12))
				all = append(append(all, byte(1+n), 6), data(n)...)
			}
			return head(fc, []byte{byte(len(all))}, all)
		}
	case 21:
		same := with(file(true))
		return same, same
	case 24:
		n := rng.IntN(32)
		return func() []byte { return head(fc, data(2)) },
			func() []byte { return head(fc, word(2+2*n), word(n), data(2*n)) }
	}
	code, object := byte(1+rng.IntN(4)), byte(rng.IntN(7))
	return with([]byte{14, code, object}), func() []byte {
		answer := []byte{14, code, byte(1 + rng.IntN(3)), 0, 0, byte(rng.IntN(4))}
		if rng.IntN(4) == 0 {
			answer[2], answer[3], answer[4] = answer[2]|0x80, 0xFF, 4
		}
		for id := range answer[5] {
			n := rng.IntN(40)
			answer = append(append(answer, id, byte(n)), data(n)...)
		}
		return head(fc, answer)
	}
}

// However drivers and adapters merge frames and split them by silences of their own, each is found
// as it was sent; and a decoder that is saved and restored at any moment goes on as if it had not
// been.
func TestTrafficMergedAndSplitInEveryWay(t *testing.T) {
	most := 100
	if testing.Short() {
		most = 30
	}
	for seed := range uint64(most) {
		rng := rand.New(rand.NewPCG(seed, 7))
		sent := traffic(rng, 60)
		if seed%4 == 0 { // the listener comes in the middle
			sent = sent[1:]
		}
		mergedAndSplit(t, fmt.Sprintf("seed %d", seed), rng, sent)
	}
}

// mergedAndSplit shows frames in pieces that are not theirs, with silences between some of them.
func mergedAndSplit(t *testing.T, what string, rng *rand.Rand, sent [][]byte) {
	t.Helper()
	stream := bytes.Join(sent, nil)
	var r frametest.Record
	d := modbus.New(19200, 11)
	done := 0
	for shown := 0; shown < len(stream); {
		switch rng.IntN(3) {
		case 0:
			shown += 1 + rng.IntN(3)
		case 1:
			shown += 1 + rng.IntN(40)
		default:
			shown += 1 + rng.IntN(400)
		}
		shown = min(shown, len(stream))
		done += d.Decode(stream[done:shown], &r)
		if rng.IntN(4) > 0 {
			done += d.Pause(stream[done:shown], &r)
		}
		next := modbus.New(19200, 11)
		if err := next.Restore(d.State()); err != nil {
			t.Fatal(err)
		}
		d = next
		if pending := shown - done; pending > d.Max() {
			t.Fatalf("%s: %d bytes pending", what, pending)
		}
	}
	d.Break(stream[done:], frame.Silence, &r)
	if len(r.Skipped) > 0 || len(r.Frames) != len(sent) {
		t.Errorf("%s: %d frames of %d, %d bytes skipped", what, len(r.Frames), len(sent), len(r.Skipped))
	}
	for i := range min(len(sent), len(r.Frames)) {
		if !bytes.Equal(r.Frames[i], sent[i]) {
			t.Fatalf("%s: frame %d is % X, sent % X behind % X", what, i, r.Frames[i], sent[i], sent[max(0, i-1)])
		}
	}
}

// Each length of the specification, in both directions: no silence is needed to find a frame. The
// bytes are those of its examples where it has one.
func TestLengthsOfTheSpecification(t *testing.T) {
	for name, c := range map[string]struct{ request, answer []byte }{
		"1 read coils":             {[]byte{1, 1, 0, 0x13, 0, 0x13}, []byte{1, 1, 3, 0xCD, 0x6B, 5}},
		"2 read discrete inputs":   {[]byte{1, 2, 0, 0xC4, 0, 0x16}, []byte{1, 2, 3, 0xAC, 0xDB, 0x35}},
		"3 read holding registers": {[]byte{1, 3, 0, 0x6B, 0, 3}, []byte{1, 3, 6, 2, 0x2B, 0, 0, 0, 0x64}},
		"4 read input registers":   {[]byte{1, 4, 0, 8, 0, 1}, []byte{1, 4, 2, 0, 10}},
		"5 write a coil":           {[]byte{1, 5, 0, 0xAC, 0xFF, 0}, []byte{1, 5, 0, 0xAC, 0xFF, 0}},
		"6 write a register":       {[]byte{1, 6, 0, 1, 0, 3}, []byte{1, 6, 0, 1, 0, 3}},
		"7 read exception status":  {[]byte{1, 7}, []byte{1, 7, 0x6D}},
		"8 return query data":      {[]byte{1, 8, 0, 0, 0xA5, 0x37}, []byte{1, 8, 0, 0, 0xA5, 0x37}},
		"8 bus message count":      {[]byte{1, 8, 0, 11, 0, 0}, []byte{1, 8, 0, 11, 1, 8}},
		"8 statistics of Modbus Plus": {
			[]byte{1, 8, 0, 21, 0, 3},
			append([]byte{1, 8, 0, 21, 0, 3, 0, 108}, make([]byte, 108)...),
		},
		"8 clear statistics of Modbus Plus": {[]byte{1, 8, 0, 21, 0, 4}, []byte{1, 8, 0, 21, 0, 4}},
		"11 event counter":                  {[]byte{1, 11}, []byte{1, 11, 0xFF, 0xFF, 1, 8}},
		"12 event log":                      {[]byte{1, 12}, []byte{1, 12, 8, 0, 0, 1, 8, 1, 0x21, 0x20, 0}},
		"15 write coils":                    {[]byte{1, 15, 0, 0x13, 0, 10, 2, 0xCD, 1}, []byte{1, 15, 0, 0x13, 0, 10}},
		"16 write registers":                {[]byte{1, 16, 0, 1, 0, 2, 4, 0, 10, 1, 2}, []byte{1, 16, 0, 1, 0, 2}},
		"17 server identification":          {[]byte{1, 17}, []byte{1, 17, 3, 7, 8, 0xFF}},
		"20 read a file": {
			[]byte{1, 20, 14, 6, 0, 4, 0, 1, 0, 2, 6, 0, 3, 0, 9, 0, 2},
			[]byte{1, 20, 12, 5, 6, 13, 0xFE, 0, 0x20, 5, 6, 0x33, 0xCD, 0, 0x40},
		},
		"21 write a file": {
			[]byte{1, 21, 13, 6, 0, 4, 0, 7, 0, 3, 6, 0xAF, 4, 0xBE, 16, 13},
			[]byte{1, 21, 13, 6, 0, 4, 0, 7, 0, 3, 6, 0xAF, 4, 0xBE, 16, 13},
		},
		"22 mask a register": {[]byte{1, 22, 0, 4, 0, 0xF2, 0, 0x25}, []byte{1, 22, 0, 4, 0, 0xF2, 0, 0x25}},
		"23 read and write registers": {
			[]byte{1, 23, 0, 3, 0, 6, 0, 14, 0, 3, 6, 0, 0xFF, 0, 0xFF, 0, 0xFF},
			[]byte{1, 23, 12, 0, 0xFE, 10, 0xCD, 0, 1, 0, 3, 0, 13, 0, 0xFF},
		},
		"24 read a queue":   {[]byte{1, 24, 4, 0xDE}, []byte{1, 24, 0, 6, 0, 2, 1, 0xB8, 0x12, 0x84}},
		"24 an empty queue": {[]byte{1, 24, 0, 2}, []byte{1, 24, 0, 2, 0, 0}},
		"43 identification": {
			[]byte{1, 43, 14, 1, 0},
			slices.Concat([]byte{1, 43, 14, 1, 1, 0, 0, 3, 0, 22}, []byte("Company identification"), []byte{1, 13},
				[]byte("Product code "), []byte{2, 5}, []byte("V2.11")),
		},
		"43 nothing to identify": {[]byte{1, 43, 14, 1, 0}, []byte{1, 43, 14, 1, 1, 0, 0, 0}},
		"43 more follows": {
			[]byte{1, 43, 14, 3, 0x80},
			[]byte{1, 43, 14, 3, 0x83, 0xFF, 0x81, 1, 0x80, 2, 'a', 'b'},
		},
		"an exception":               {[]byte{1, 3, 0, 0x6B, 0, 3}, []byte{1, 0x83, 2}},
		"an exception of 43":         {[]byte{1, 43, 14, 1, 0}, []byte{1, 0xAB, 1}},
		"… that names the MEI type":  {[]byte{1, 43, 14, 1, 0}, []byte{1, 0xAB, 14, 2}},
		"an exception of 128":        {[]byte{1, 20, 7, 6, 0, 4, 0, 1, 0, 2}, []byte{1, 0x80, 1}},
		"an exception of diagnostic": {[]byte{1, 8, 0, 0, 1, 2}, []byte{1, 0x88, 3}},
	} {
		request, answer := sealed(c.request...), sealed(c.answer...)
		for from, parts := range map[string][][]byte{
			"a pair, and the next one": {request, answer, request, answer},
			"the answers alone":        {answer, answer},
			"asked again":              {request, request, answer},
		} {
			// it looks like the beginning of a long answer, up to the next border
			if name[:2] == "17" && from == "asked again" {
				continue
			}
			stream := bytes.Join(append(parts, sealed(9, 6, 0, 1, 0, 5)), nil)
			var r frametest.Record
			if done := modbus.New(9600, 11).Decode(stream, &r); done != len(stream) || len(r.Skipped) > 0 ||
				len(r.Frames) != len(parts)+1 {
				t.Errorf("%s, %s: %d of %d bytes, %d frames, %d bytes skipped", name, from, done, len(stream),
					len(r.Frames), len(r.Skipped))
				continue
			}
			for i, p := range parts {
				if !bytes.Equal(r.Frames[i], p) {
					t.Errorf("%s, %s: frame %d is % X", name, from, i, r.Frames[i])
				}
			}
		}
	}
}

// A diagnostic that asks for its own data has any length, and so has its answer.
func TestEchoesOfAnyLength(t *testing.T) {
	for words := range 60 {
		rng := rand.New(rand.NewPCG(uint64(words), 9))
		body := []byte{1, 8, 0, 0}
		for range words {
			body = append(body, byte(rng.Uint32()), byte(rng.Uint32()))
		}
		same := sealed(body...)
		stream := bytes.Join([][]byte{
			sealed(1, 3, 0, 0, 0, 1), sealed(1, 3, 2, 0, 7), same, same,
			sealed(1, 3, 0, 0, 0, 1),
		}, nil)
		for name, cuts := range map[string][]int{
			"merged": {len(stream)},
			"split":  {15, 15 + rng.IntN(len(same)), 15 + len(same) + rng.IntN(len(same)), len(stream)},
		} {
			var r frametest.Record
			d := modbus.New(9600, 11)
			done := 0
			for _, cut := range cuts {
				done += d.Decode(stream[done:cut], &r)
				done += d.Pause(stream[done:cut], &r)
			}
			d.Break(stream[done:], frame.Silence, &r)
			if len(r.Frames) != 5 || len(r.Skipped) != 0 || !bytes.Equal(r.Frames[3], same) {
				t.Errorf("%d words, %s: %d frames, %d bytes skipped", words, name, len(r.Frames), len(r.Skipped))
			}
		}
	}
}

// Functions whose frames have no known length are found between borders, merged with others or
// split.
func TestUnknownFunctions(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 8))
		vendor := make([]byte, 6+rng.IntN(60))
		for i := range vendor {
			vendor[i] = byte(rng.Uint32())
		}
		vendor[0], vendor[1] = 9, 0x42
		parts := [][]byte{sealed(1, 3, 0, 0, 0, 2), sealed(vendor...), sealed(1, 3, 4, 0, 9, 0, 8)}
		stream := bytes.Join(parts, nil)
		at := len(parts[0])
		for name, cuts := range map[string][]int{
			"merged": {len(stream)},
			"split":  {at, at + 1 + rng.IntN(len(vendor)-1), at + len(vendor) + 2, len(stream)},
		} {
			var r frametest.Record
			d := modbus.New(9600, 11)
			done := 0
			for _, cut := range cuts {
				done += d.Decode(stream[done:cut], &r)
				done += d.Pause(stream[done:cut], &r)
			}
			d.Break(stream[done:], frame.Silence, &r)
			if len(r.Frames) != 3 || len(r.Skipped) != 0 {
				t.Errorf("seed %d, %s: %d frames, %d bytes skipped", seed, name, len(r.Frames), len(r.Skipped))
			}
		}
	}
}

// A frame that is cut off holds up the next one no longer than to that one's end.
func TestCutFrameHoldsNothingUp(t *testing.T) {
	cut, good := sealed(1, 3, 4, 0, 9, 0, 8)[:5], sealed(2, 6, 0, 1, 0, 5)
	stream := append(append([]byte{}, cut...), good...)
	var r frametest.Record
	d := modbus.New(9600, 11)
	done := d.Decode(cut, &r)
	if done += d.Pause(cut[done:], &r); done != 0 {
		t.Fatalf("%d bytes of a frame that may go on are given up", done)
	}
	done += d.Decode(stream[done:], &r)
	done += d.Pause(stream[done:], &r)
	if done != len(stream) || len(r.Frames) != 1 || r.Harm != 1 || len(r.Skipped) != len(cut) {
		t.Errorf("%d of %d bytes, %d frames, %d damaged, %d skipped", done, len(stream), len(r.Frames), r.Harm,
			len(r.Skipped))
	}
}

func TestStateThatIsNone(t *testing.T) {
	d := modbus.New(9600, 11)
	for _, b := range [][]byte{nil, {1}, make([]byte, 12), append(d.State(), 1), make([]byte, 600)} {
		if d.Restore(b) == nil {
			t.Errorf("% X is taken as a state", b)
		}
	}
}

// A byte of an answer's CRC may be the count of bytes that a request of its kind has, and the front
// of the next frame may make that request's CRC right: once in 65,536 such pairs. What was asked
// decides.
func TestAnswerThatIsTheFrontOfARequest(t *testing.T) {
	const words = 3
	for unit := byte(1); unit < 4; unit++ {
		var asked, answered, next []byte
		for at := 0; answered == nil; at++ {
			if b := sealed(unit, 16, byte(at>>8), byte(at), 0, words); b[6] == 2*words {
				asked, answered = sealed(unit, 16, byte(at>>8), byte(at), 0, words, 2*words, 0, 1, 0, 2, 0, 3), b
			}
		}
		for n := 0; next == nil; n++ {
			b := sealed(unit, 3, byte(n>>16), byte(n>>8), 0, byte(n))
			if merged := slices.Concat(answered, b[:7]); crc16.Modbus(merged) == 0 {
				next = b
			}
		}
		for name, want := range map[string][][]byte{
			"answered":               {asked, answered, next},
			"asked again, answered":  {asked, asked, answered, next},
			"a request that is both": {slices.Concat(answered, next[:7])}, // nothing was asked: the longer one
		} {
			stream := slices.Concat(want...)
			for seed := range uint64(50) {
				r, err := frametest.Feed(modbus.New(19200, 11), stream, rand.New(rand.NewPCG(seed, 5)))
				if err != nil || r.Harm > 0 || !slices.EqualFunc(r.Frames, want, bytes.Equal) {
					t.Fatalf("unit %d, %s, seed %d: %d damaged, frames % X, want % X, %v", unit, name, seed, r.Harm, r.Frames, want, err)
				}
			}
		}
	}
}
