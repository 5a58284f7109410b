package line_test

import (
	"strings"
	"testing"

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
		r, err := frametest.Feed(line.New(100), []byte(c.stream), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.Frames) != c.frames || r.Harm != c.damaged || len(r.Skipped) != c.skipped {
			t.Errorf("%s: %d frames, %d damaged, %d skipped; want %d, %d, %d",
				name, len(r.Frames), r.Harm, len(r.Skipped), c.frames, c.damaged, c.skipped)
		}
	}
}
