package recorder

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/uring/uringtest"
)

// engines are the ways in which the log's files can be written.
var engines = []struct {
	name string
	cfg  config.Log
}{
	{"std", config.Log{}},
	{"uring", config.Log{Engine: "uring"}},
	{"uring-linked", config.Log{Engine: "uring", Linked: true}},
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// What one engine has written, any engine reads: the same bytes by all of them.
func TestLogOnEveryEngine(t *testing.T) {
	for _, writer := range engines {
		t.Run(writer.name, func(t *testing.T) {
			writer.cfg.Dir = t.TempDir()
			var chains asyncfile.ChainStats
			open := func(c config.Log) *seglog.Log {
				fs, err := logFiles(c, &chains, quiet())
				if err != nil {
					t.Fatal(err)
				}
				l, err := seglog.Open(seglog.Config{
					FS: fs, SegmentBytes: 64 << 10, Sync: seglog.SyncAlways,
					Chain: c.Linked,
				})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			l := open(writer.cfg)
			var all sync.WaitGroup
			for p := range 8 {
				all.Go(func() {
					for i := range 200 {
						if _, err := l.Append(uint32(p), int64(i), fmt.Appendf(nil, "%d/%d", p, i)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if p := l.Position(); p.Durable != 1600 {
				t.Errorf("%+v", p)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			for _, reader := range engines {
				reader.cfg.Dir = writer.cfg.Dir
				l := open(reader.cfg)
				r := l.NewReader(0)
				next := make([]int, 8)
				for range 1600 {
					rec, err := r.Next()
					if err != nil {
						t.Fatal(err)
					}
					if want := fmt.Sprintf("%d/%d", rec.Stream, next[rec.Stream]); string(rec.Data) != want {
						t.Fatalf("%s: record %d is %q, want %q", reader.name, rec.Seq, rec.Data, want)
					}
					next[rec.Stream]++
				}
				r.Close()
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if writer.cfg.Linked && asyncfile.Available(asyncfile.Uring) == nil {
				if c := chains.Counts(); c.Written < 1600 || c.SuccessRate() != 1 {
					t.Errorf("%v", c)
				}
			}
		})
	}
}

// Where io_uring is refused the log works by ordinary calls, and says so.
func TestLogWhereRingsAreRefused(t *testing.T) {
	uringtest.Refused(t, "^TestLogOnEveryEngine$|^TestWarningOfTheEngine$")
}

func TestWarningOfTheEngine(t *testing.T) {
	var said bytes.Buffer
	_, err := logFiles(config.Log{Engine: "uring", Dir: t.TempDir()}, nil, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	refused := asyncfile.Available(asyncfile.Uring) != nil
	if n := strings.Count(said.String(), "level=WARN"); refused != (n == 1) {
		t.Errorf("io_uring is refused: %v; said: %s", refused, said.String())
	}
}

// BenchmarkLogEngine is records of 128 bytes, each acknowledged after its fdatasync.
// TALLYWHEEL_BENCH_DIR says where.
func BenchmarkLogEngine(b *testing.B) {
	for _, producers := range []int{1, 16, 64} {
		for _, e := range engines {
			b.Run(fmt.Sprintf("producers=%d/%s", producers, e.name), func(b *testing.B) {
				dir, err := os.MkdirTemp(os.Getenv("TALLYWHEEL_BENCH_DIR"), "engine")
				if err != nil {
					b.Fatal(err)
				}
				defer os.RemoveAll(dir)
				e.cfg.Dir = dir
				fs, err := logFiles(e.cfg, nil, quiet())
				if err != nil {
					b.Fatal(err)
				}
				l, err := seglog.Open(seglog.Config{FS: fs, Sync: seglog.SyncAlways, Chain: e.cfg.Linked})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				for deadline := time.Now().Add(10 * time.Second); !ready(dir) && time.Now().Before(deadline); {
					runtime.Gosched() // the next segment is filled with zeros in the background: not what is measured
				}
				data := make([]byte, 128)
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var all sync.WaitGroup
				for range producers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := l.Append(0, 1, data); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// ready reports whether the segment after the first lies ready.
func ready(dir string) bool {
	files, err := os.ReadDir(dir)
	n := 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".spare") {
			n++
		}
	}
	return err != nil || n > 0
}

// With linked operations, what became of the batches is told, also in the last words.
func TestLinkedBatchesAreCounted(t *testing.T) {
	if err := asyncfile.Available(asyncfile.Uring); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	g := startTelling(t, log, t.TempDir(), func(c *config.Config) { c.Log.Engine, c.Log.Linked = "uring", true })
	if _, err := g.log.Append(0, 1, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	if c, ok := g.Chains(); !ok || c.Whole == 0 {
		t.Errorf("%+v, %v; want a batch that was written whole", c, ok)
	}
	if _, err := g.Stop("stopped"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "(100.00 %)") {
		t.Errorf("last words: %s", said.String())
	}
}

// What devices say is for the owner and the group alone, whatever the umask and the engine.
func TestNobodyElseReadsTheLog(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "data")
			e.cfg.Dir = dir
			g, err := Start(config.Config{Log: e.cfg, API: config.API{Listen: "off"}}, quiet())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Stop("test"); err != nil {
				t.Fatal(err)
			}
			err = filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				st, err := d.Info()
				if err == nil && st.Mode().Perm()&0o027 != 0 {
					t.Errorf("%s: %v", path, st.Mode())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
