package asyncfile

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// paired lets ways to do the same take turns, some milliseconds each, and reports the time of each
// and its speed over that of the first.
func paired(b *testing.B, names []string, ways []func(n int)) {
	const turn = 2000
	total := make([]time.Duration, len(ways))
	for first := 0; b.Loop(); first++ {
		for k := range ways {
			i := (first + k) % len(ways) // who comes behind whom changes, too
			start := time.Now()
			ways[i](turn)
			total[i] += time.Since(start)
		}
	}
	for i, name := range names {
		b.ReportMetric(float64(total[i].Nanoseconds())/float64(b.N*turn), name+"-ns")
		if i > 0 {
			b.ReportMetric(float64(total[0])/float64(total[i]), name+"/"+names[0])
		}
	}
}

// BenchmarkReadAt is random reads of 4 KiB from the page cache.
func BenchmarkReadAt(b *testing.B) {
	const size = 64 << 20
	path := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		b.Fatal(err)
	}
	plain, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	names, files := []string{"os.File"}, []io.ReaderAt{plain}
	for _, backend := range []Backend{Std, Uring, Mmap} {
		if Available(backend) != nil {
			continue
		}
		f, err := Open(path, Config{Backend: backend})
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		names, files = append(names, string(backend)), append(files, f)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	buf := make([]byte, 4096)
	ways := make([]func(int), len(files))
	for i, f := range files {
		ways[i] = func(n int) {
			for range n {
				if _, err := f.ReadAt(buf, rng.Int64N(size/4096)*4096); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	paired(b, names, ways)
}

// BenchmarkLines is lines of a log of some 90 bytes from the page cache, beside the loop that an
// expert would write by hand.
func BenchmarkLines(b *testing.B) {
	path := filepath.Join(b.TempDir(), "text")
	var text strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&text, "2026-11-20T07:30:%02d.%06dZ INFO plc-%d channel=%d value=%d unit=degC%s\n", i%60, i, i%16,
			i%64, i%900, strings.Repeat("x", i%40))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	plain, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	byHand := func(int) {
		if _, err := plain.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		n := 0
		r := bufio.NewReaderSize(plain, 64<<10)
		for {
			line, err := r.ReadSlice('\n')
			n += len(line)
			if err != nil {
				break
			}
		}
		if n != text.Len() {
			b.Fatal(n)
		}
	}
	names, ways := []string{"ReadSlice"}, []func(int){byHand}
	for _, backend := range []Backend{Std, Mmap} {
		f, err := Open(path, Config{Backend: backend, Sequential: true})
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		names = append(names, "Lines-"+string(backend))
		ways = append(ways, func(int) {
			n := 0
			lines := NewLines(f, 0)
			for lines.Next() {
				n += len(lines.Bytes()) + 1
			}
			if n != text.Len() {
				b.Fatal(n)
			}
		})
	}
	paired(b, names, ways)
	b.ReportMetric(testing.AllocsPerRun(1, func() { ways[1](0) })/200_000, "allocs/line")
}
