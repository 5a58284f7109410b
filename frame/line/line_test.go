package line_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/line"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		stream                   string
		frames, damaged, skipped int
	}{
		"plain":                    {"a\r\n\nb\n", 3, 0, 0},
		"NMEA with right checksum": {"$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n", 1, 0, 0},
		"NMEA with wrong checksum": {"$GPGLL,5300.97914,N,00259.98174,E,125926,A*29\r\nok\n", 1, 1, 47},
		"NMEA with no checksum":    {"$GPGLL,1,2\r\n", 1, 0, 0},
		"NMEA with bad digits":     {"!AIVDM*zz\n", 0, 1, 10},
		"too long, then good":      {long + "\nok\n", 1, 1, 201},
		"far too long":             {long + long + long + "\nok\n", 1, 1, 601},
		"truncated":                {"ok\ncut", 1, 1, 3},
	} {
		r, err := frametest.Feed(line.New(100, frame.NoCheck), []byte(c.stream), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.Frames) != c.frames || r.Harm != c.damaged || len(r.Skipped) != c.skipped {
			t.Errorf("%s: %d frames, %d damaged, %d skipped; want %d, %d, %d",
				name, len(r.Frames), r.Harm, len(r.Skipped), c.frames, c.damaged, c.skipped)
		}
	}
}

const good = "$GPGLL,5300.97914,N,00259.98174,E,125926,A*28\r\n"

// With the check nmea a frame is a sentence with a right checksum, and nothing else is.
func TestSentences(t *testing.T) {
	binary := "\xB5\x62\x01\x07\x5C\x00$!*\x00"
	for name, c := range map[string]struct {
		stream                   string
		frames, damaged, skipped int
	}{
		"good":                        {good + good, 2, 0, 0},
		"damaged first byte":          {"%" + good[1:] + good, 1, 1, len(good)},
		"wrong sum":                   {strings.Replace(good, "*28", "*00", 1) + good, 1, 1, len(good)},
		"cut sum":                     {good[:len(good)-3] + "\r\n" + good, 1, 1, len(good) - 1},
		"no sum":                      {"$GPGLL,1,2\r\n", 0, 1, 12},
		"text":                        {"hello\r\n", 0, 0, 7},
		"binary before":               {binary + good, 1, 0, len(binary)},
		"much binary before":          {strings.Repeat(binary, 1000) + good, 1, 0, 1000 * len(binary)},
		"much binary without a start": {strings.Repeat("\x00", 1000) + good, 1, 0, 1000},
		"a sentence glued to another": {good[:20] + good, 1, 0, 20},
		"cut at the end":              {good + good[:20], 1, 1, 20},
		"longer than may be":          {"$" + strings.Repeat("\x01\x01", 60) + "*00\r\n" + good, 1, 1, 126},
	} {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 3))
			r, err := frametest.Feed(line.New(100, frame.CheckNMEA), []byte(c.stream), rng)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(r.Frames) != c.frames || r.Harm != c.damaged || len(r.Skipped) != c.skipped {
				t.Fatalf("%s: %d frames, %d damaged, %d skipped; want %d, %d, %d",
					name, len(r.Frames), r.Harm, len(r.Skipped), c.frames, c.damaged, c.skipped)
			}
			for _, f := range r.Frames {
				if !bytes.Equal(f, []byte(good)) {
					t.Fatalf("%s: frame %q", name, f)
				}
			}
		}
	}
}
