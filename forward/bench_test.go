package forward

import (
	"log/slog"
	"testing"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/seglog"
)

// BenchmarkForward sends a backlog of frames of 128 bytes, of one source and of eight, to the
// server within, which syncs each message.
func BenchmarkForward(b *testing.B) {
	for _, c := range []struct {
		name    string
		sources int
	}{{"1 source", 1}, {"8 sources", 8}} {
		b.Run(c.name, func(b *testing.B) {
			path := b.TempDir()
			dir, err := seglog.Dir(path)
			if err != nil {
				b.Fatal(err)
			}
			l, err := seglog.Open(seglog.Config{FS: dir})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			streams, err := archive.LoadStreams(path)
			if err != nil {
				b.Fatal(err)
			}
			var numbers []uint32
			for i := range c.sources {
				n, err := streams.Number(archive.Stream{Source: "s" + string(rune('a'+i)), Frame: "raw"})
				if err != nil {
					b.Fatal(err)
				}
				numbers = append(numbers, n)
			}
			data := make([]byte, 128)
			for i := range b.N {
				if _, err := l.Append(numbers[i%c.sources], 1, data); err != nil {
					b.Fatal(err)
				}
			}
			if err := l.Sync(); err != nil {
				b.Fatal(err)
			}
			cfg := config.Config{
				Log:     config.Log{Dir: path},
				Forward: []config.Forward{{To: "nats", Listen: "off"}},
			}.WithDefaults()
			b.SetBytes(int64(len(data)))
			b.ResetTimer()
			f := Start(cfg, archive.Live(l, streams), slog.New(slog.DiscardHandler))
			for _, d := range f.all { // as Finish does, but for the end of the server
				close(d.last)
			}
			f.done.Wait()
			b.StopTimer()
			f.Stop()
			if through := f.Books()[0].Through; through < l.Position().Durable {
				b.Fatalf("%d of %d records are acknowledged", through, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}
