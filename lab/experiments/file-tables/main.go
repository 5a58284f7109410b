// Command file-tables prints four tables about files: sequential and random access by every backend with the page cache dropped,
// the size of a buffer and what it costs the collector, a map beside seek and read, and ways to read lines. The ways of a
// table take turns in each round.
//
//	go run ./lab/experiments/file-tables -size 1073741824 -rounds 5
//	go run ./lab/experiments/file-tables -only lines
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/turns"
)

// way is one way to do what a table is about. It returns its figures, in the table's order of columns.
type way struct {
	name string
	run  func() ([]float64, error)
}

// table is a set of ways and what is measured of them.
type table struct {
	name, title string
	columns     []string // with units
	ways        []way
}

// lab is what the ways share.
type lab struct {
	dir  string
	file string // of size bytes
	size int64
	text string // of lines
}

func main() {
	var l lab
	flag.StringVar(&l.dir, "dir", ".", "where to make the files: on the disk that is asked about")
	flag.Int64Var(&l.size, "size", 1<<30, "bytes of the file")
	rounds := flag.Int("rounds", 5, "rounds")
	only := flag.String("only", "", "tables whose name has this in it: access, buffer, map, lines")
	flag.Parse()
	if err := l.run(*only, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "file-tables:", err)
		os.Exit(1)
	}
}

func (l *lab) run(only string, rounds int) error {
	if err := turns.Lock(); err != nil {
		return err
	}
	work, err := os.MkdirTemp(l.dir, "tallywheel-files-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	l.dir, l.file, l.text = work, filepath.Join(work, "file"), filepath.Join(work, "text")
	if err := errors.Join(l.fill(), l.write()); err != nil {
		return err
	}
	for _, t := range []table{l.access(), l.buffer(), l.mapped(), l.lines()} {
		if strings.Contains(t.name, only) {
			if err := t.print(rounds); err != nil {
				return err
			}
		}
	}
	return nil
}

// print runs the rounds and prints a row for each way: medians, with the range of the first column.
func (t table) print(rounds int) error {
	figures := map[string][][]float64{}
	for round := range rounds {
		for _, w := range t.ways {
			f, err := w.run()
			if err != nil {
				return fmt.Errorf("%s: %s: %w", t.name, w.name, err)
			}
			figures[w.name] = append(figures[w.name], f)
			fmt.Fprintf(os.Stderr, "round %d %s: %-32s %.4g\n", round+1, t.name, w.name, f)
		}
	}
	fmt.Printf("\n%s, %d rounds, medians\n%-34s", t.title, rounds, "")
	for i, c := range t.columns {
		if i == 0 {
			c += " (range)"
		}
		fmt.Printf(" %*s", width(i), c)
	}
	fmt.Println()
	for _, w := range t.ways {
		fmt.Printf("%-34s", w.name)
		for i := range t.columns {
			var v []float64
			for _, round := range figures[w.name] {
				v = append(v, round[i])
			}
			cell := fmt.Sprintf("%.4g", turns.Median(v))
			if i == 0 {
				cell += fmt.Sprintf(" (%.4g–%.4g)", slices.Min(v), slices.Max(v))
			}
			fmt.Printf(" %*s", width(i), cell)
		}
		fmt.Println()
	}
	return nil
}

func width(column int) int {
	if column == 0 {
		return 28
	}
	return 16
}

// fill writes the large file whole.
func (l *lab) fill() error {
	f, err := os.Create(l.file)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for at := int64(0); at < l.size && err == nil; at += int64(len(b)) {
		_, err = f.WriteAt(b[:min(int64(len(b)), l.size-at)], at)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// write makes a text of some 160 MB, or as large as the file if that is smaller, with lines like those of a log.
func (l *lab) write() error {
	var b strings.Builder
	for i := 0; b.Len() < int(min(160<<20, l.size)); i++ {
		fmt.Fprintf(&b, "2026-11-20T07:30:%02d.%06dZ INFO plc-%d reading channel=%d value=%d.%03d unit=degC status=ok%s\n",
			i%60, i%1_000_000, i%16, i%64, i%900, i%1000, strings.Repeat("x", i%40))
	}
	return os.WriteFile(l.text, []byte(b.String()), 0o600)
}

// forget drops a file from the page cache.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), sys.DropCache(f), f.Close())
}
