package modbus_test

import (
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
