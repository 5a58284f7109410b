package export_test

import (
	"context"
	"io"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/export"
	"github.com/tallywheel/tallywheel/frame/tally128"
)

// BenchmarkRun exports a log of frames of 128 bytes of eight sources, 16 MB each time; raw: of one
// of them. MB/s are those of the log's bytes.
func BenchmarkRun(b *testing.B) {
	m := newLog(b, b.TempDir())
	frame := make([]byte, tally128.Size)
	const records = 100_000
	for n := range records {
		s := pump
		s.Source += string(rune('a' + n%8))
		tally128.Encode(frame,
			tally128.Header{Device: uint32(n % 8), Epoch: 1, Seq: uint64(n / 8), DeviceTime: int64(n)},
			make([]byte, tally128.PayloadSize))
		m.add(b, s, begin, frame)
	}
	log := m.live(b)
	for _, format := range export.Formats() {
		b.Run(string(format), func(b *testing.B) {
			cfg := export.Config{Format: format}
			if format == export.Raw {
				cfg.Query = archive.Query{Source: "pumpa"}
			}
			b.SetBytes(records * (32 + tally128.Size)) // of the segment's file the most is free
			for range b.N {
				if _, err := export.Run(context.Background(), log, cfg, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
