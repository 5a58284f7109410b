package modbus_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/modbus"
)

// turnsOf counts what the frames of a stream say of requests and answers.
func turnsOf(t *testing.T, stream []byte, seed uint64) (asked, answered, unanswered, damaged int) {
	t.Helper()
	var rng *rand.Rand
	if seed > 0 {
		rng = rand.New(rand.NewPCG(seed, 3))
	}
	r, err := frametest.Feed(modbus.New(19200, 11), stream, rng)
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range r.Turns {
		for n, is := range map[*int]bool{&asked: turn.Asks, &answered: turn.Answers, &unanswered: turn.Unanswered} {
			if is {
				*n++
			}
		}
	}
	return asked, answered, unanswered, r.Harm
}

// What is a request, what answers it, and what does not.
func TestRequestsAndAnswers(t *testing.T) {
	read, values := sealed(1, 3, 0, 0, 0, 2), sealed(1, 3, 4, 0, 9, 0, 8)
	other, others := sealed(2, 4, 0, 0, 0, 1), sealed(2, 4, 2, 0, 9)
	write, again := sealed(1, 6, 0, 1, 0, 3), sealed(1, 6, 0, 1, 0, 4)
	writes, written := sealed(1, 16, 0, 1, 0, 2, 4, 0, 10, 1, 2), sealed(1, 16, 0, 1, 0, 2)
	plus, clear := sealed(1, 8, 0, 21, 0, 3), sealed(1, 8, 0, 21, 0, 4)
	plusses := sealed(append([]byte{1, 8, 0, 21, 0, 3, 0, 108}, make([]byte, 108)...)...)
	broken := slices.Clone(values)
	broken[3] ^= 0x10
	for name, c := range map[string]struct {
		parts                             [][]byte
		asked, answered, unanswered, harm int
	}{
		"all answered":                      {[][]byte{read, values, other, others, read, values}, 3, 3, 0, 0},
		"one is not":                        {[][]byte{read, values, read, other, others}, 3, 2, 1, 0},
		"tried again twice":                 {[][]byte{read, read, read, values}, 3, 1, 2, 0},
		"the last one has time":             {[][]byte{read, values, read}, 2, 1, 0, 0},
		"an exception answers":              {[][]byte{read, sealed(1, 0x83, 2), other, others}, 2, 2, 0, 0},
		"… also by function 128":            {[][]byte{read, sealed(1, 0x80, 1), other, others}, 2, 2, 0, 0},
		"statistics of Modbus Plus":         {[][]byte{plus, plusses, read, values}, 2, 2, 0, 0},
		"… are cleared":                     {[][]byte{read, values, clear, clear, read, values}, 3, 3, 0, 0},
		"another unit's exception does not": {[][]byte{read, sealed(2, 0x83, 2), read, values}, 2, 1, 0, 0},
		"a damaged answer counts as that":   {[][]byte{read, broken, read, values}, 2, 1, 0, 1},
		"… and so does a damaged request":   {[][]byte{other, others, broken, read, values}, 2, 2, 0, 1},
		"to all units, which do not answer": {[][]byte{sealed(0, 6, 0, 1, 0, 3), read, values}, 1, 1, 0, 0},
		"… behind one that is not answered": {[][]byte{read, sealed(0, 6, 0, 1, 0, 3), read, values}, 2, 1, 1, 0},
		"listen only, which is not answered": {
			[][]byte{sealed(1, 8, 0, 4, 0, 0), read, values, read, values},
			2, 2, 0,
			0,
		},
		"writes":                             {[][]byte{read, values, write, write, again, again}, 3, 3, 0, 0},
		"a write, and then another":          {[][]byte{read, values, write, again, again, read, values}, 4, 3, 1, 0},
		"many registers":                     {[][]byte{writes, written, writes, writes, written}, 3, 2, 1, 0},
		"… written elsewhere":                {[][]byte{writes, sealed(1, 16, 0, 9, 0, 2), read, values}, 2, 1, 0, 0},
		"it begins with an answer":           {[][]byte{values, read, values}, 1, 1, 0, 0},
		"… to a write, which looks like one": {[][]byte{write, again, again, read, values}, 2, 2, 0, 0},
		"… and all are the same":             {[][]byte{write, write, write, write, write}, 0, 0, 0, 0},
		"answers alone":                      {[][]byte{values, write, others, values, again, values}, 0, 0, 0, 0},
		"a function that is not known": {
			[][]byte{read, values, sealed(1, 0x42, 7, 7), read, values},
			2, 2, 0,
			0,
		},
		"such a one behind one not answered": {
			[][]byte{read, sealed(1, 0x42, 7, 7, 7, 7, 7), read, values},
			2, 1, 1,
			0,
		},
		"an answer longer than was asked for": {
			[][]byte{read, sealed(1, 3, 6, 0, 9, 0, 8, 0, 7), read, values},
			2, 1,
			0, 0,
		},
	} {
		for seed := range uint64(5) {
			asked, answered, unanswered, harm := turnsOf(t, bytes.Join(c.parts, nil), seed)
			if asked != c.asked || answered != c.answered || unanswered != c.unanswered || harm != c.harm {
				t.Errorf("%s: %d asked, %d answered, %d unanswered, %d damaged; want %d, %d, %d, %d",
					name, asked, answered, unanswered, harm, c.asked, c.answered, c.unanswered, c.harm)
			}
		}
	}
}

// The end of a connection leaves nothing to be answered on the next one.
func TestNothingIsAskedOverAnEnd(t *testing.T) {
	request := sealed(1, 3, 0, 0, 0, 2)
	var r frametest.Record
	d := modbus.New(9600, 11)
	for range 3 {
		d.Break(request, frame.Closed, &r)
	}
	for _, turn := range r.Turns {
		if !turn.Asks || turn.Unanswered {
			t.Errorf("%+v", r.Turns)
		}
	}
}

// A bus on which devices do not answer, and answers are damaged: each request that the next one
// follows is unanswered, and no other.
func TestUnansweredOnARandomBus(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 11))
		spoils := seed%2 == 0
		pair := [][]byte{sealed(1, 3, 0, 0, 0, 1), sealed(1, 3, 2, 0, 7)}
		parts := append(pair, pair...)
		if seed%3 == 0 {
			parts = parts[1:] // the listener comes in the middle
		}
		want, harm := 0, 0
		for n := range 200 {
			unit, value := byte(1+rng.IntN(5)), []byte{byte(n >> 8), byte(n)}
			count := byte(1 + rng.IntN(30))
			var request, answer []byte
			switch fc := []byte{1, 3, 4, 6, 16, 22}[rng.IntN(6)]; fc {
			case 1:
				data := make([]byte, (int(count)+7)/8)
				request, answer = sealed(unit, 1, value[0], value[1], 0, count),
					sealed(append([]byte{unit, 1, byte(len(data))}, data...)...)
			case 3, 4:
				request = sealed(unit, fc, value[0], value[1], 0, count)
				answer = sealed(append([]byte{unit, fc, 2 * count}, make([]byte, 2*int(count))...)...)
			case 6:
				request = sealed(unit, 6, 0, 1, value[0], value[1])
				answer = request
			case 16:
				request = sealed(append([]byte{unit, 16, 0, 1, 0, count, 2 * count}, make([]byte, 2*int(count))...)...)
				answer = sealed(unit, 16, 0, 1, 0, count)
			case 22:
				request = sealed(unit, 22, value[0], value[1], 0, 1, 0, 2)
				answer = request
			}
			parts = append(parts, request)
			switch {
			case n == 199 || rng.IntN(4) > 0:
				parts = append(parts, answer)
			case spoils && rng.IntN(2) == 0:
				answer = slices.Clone(answer)
				answer[len(answer)-3] ^= 0x41
				parts = append(parts, answer)
				harm++
			default:
				want++
			}
		}
		stream := bytes.Join(parts, nil)
		_, _, unanswered, damaged := turnsOf(t, stream, seed)
		if unanswered > want || !spoils && unanswered != want || damaged > harm {
			t.Errorf("seed %d: %d unanswered, %d damaged; want %d and %d", seed, unanswered, damaged, want, harm)
		}
		if unanswered < want*2/3 { // a write behind damage may be an answer, too
			t.Errorf("seed %d: only %d of %d unanswered", seed, unanswered, want)
		}
		if seed < 10 {
			if err := frametest.Check(func() frame.Decoder { return modbus.New(19200, 11) }, stream, seed); err != nil {
				t.Error(err)
			}
		}
	}
}
