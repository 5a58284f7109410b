package archive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// illFolder is a folder of which some reads of files fail.
type illFolder struct {
	seglog.FS
	reads, from, times *atomic.Int64 // so many so far; these fail
}

func (d illFolder) Open(name string) (seglog.File, error) {
	f, err := d.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return illFile{f, d}, nil
}

type illFile struct {
	seglog.File
	d illFolder
}

func (f illFile) ReadAt(b []byte, off int64) (int, error) {
	if n, from := f.d.reads.Add(1), f.d.from.Load(); n >= from && n-from < f.d.times.Load() {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(b, off)
}

// numberedLog is a log with frames of one device, numbered from 0 on, in several segments. It is
// closed: it can be read, and nobody else reads it.
func numberedLog(t *testing.T, d illFolder, frames uint64) (*seglog.Log, *Streams) {
	t.Helper()
	var numbers []uint64
	for n := range frames {
		numbers = append(numbers, n)
	}
	return logOf(t, d, numbers...)
}

// logOf is numberedLog with these numbers, in this order.
func logOf(t *testing.T, d illFolder, numbers ...uint64) (*seglog.Log, *Streams) {
	t.Helper()
	log, err := seglog.Open(seglog.Config{FS: d, SegmentBytes: 16 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := LoadStreams(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := streams.Number(Stream{Source: "a", Frame: "tally128"})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		var b [tally128.Size]byte
		tally128.Encode(b[:], tally128.Header{Device: 1, Epoch: 1, Seq: n}, nil)
		appendRecord(t, log, stream, int64(i+1), string(b[:]))
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return log, streams
}

// An error while the end of the log is read is not the end: one that passes costs nothing, and one
// that stays is told, with the positions as good as what could be read.
func TestReplayTakesNoErrorForTheEnd(t *testing.T) {
	const frames = 600
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}
	log, streams := numberedLog(t, d, frames)
	replay := func() (position, last uint64, err error) {
		s := &StartSheet{}
		s.Sheet.Ports = []ledger.Port{{ID: "a"}}
		at, err := s.Replay(log, streams, nil)
		for _, p := range s.Positions["a"] {
			position = p.Last
		}
		return position, uint64(at), err
	}
	failing := func(from, times int64) {
		d.reads.Store(0)
		d.from.Store(from)
		d.times.Store(times)
	}
	failing(1, 0)
	if position, last, err := replay(); err != nil || position != frames-1 || last != frames {
		t.Fatalf("without an error: number %d, time %d, %v", position, last, err)
	}
	all := d.reads.Load()
	if all < 5 {
		t.Fatalf("the log is read in %d calls; want more, to make some of them fail", all)
	}
	for n := int64(1); n <= all; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			failing(n, 1)
			if position, last, err := replay(); err != nil || position != frames-1 || last != frames {
				t.Errorf("read %d fails once: number %d, time %d, %v; want %d", n, position, last, err, frames-1)
			}
			failing(n, 1<<40)
			if position, last, err := replay(); !errors.Is(err, syscall.EIO) || position != max(last, 1)-1 {
				t.Errorf("the disk fails from read %d on: number %d, time %d, %v; want EIO", n, position, last, err)
			}
		})
	}
}

// TestReplayBehindDamage replays a log of which a part cannot be read. What stands there has come
// from the wire: it is not called missing, and what is missing behind it is.
func TestReplayBehindDamage(t *testing.T) {
	for name, c := range map[string]struct {
		lost int // numbers that never came, behind the damage
		tail bool
	}{
		"nothing is lost":            {},
		"frames are lost behind it":  {lost: 50},
		"the damage is the last one": {tail: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			dir, err := seglog.Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			var numbers []uint64
			for n := range uint64(600) {
				if n >= 500 {
					n += uint64(c.lost)
				}
				numbers = append(numbers, n)
			}
			log, streams := logOf(t, illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, numbers...)
			segments, err := seglog.Segments(dir)
			if err != nil || len(segments) < 5 {
				t.Fatalf("%d segments, %v", len(segments), err)
			}
			at := 2
			if c.tail {
				at = len(segments) - 1
			}
			file := filepath.Join(path, segments[at].Name)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			const header = 4 << 10                     // bytes, before the first record
			written := len(bytes.TrimRight(b, "\x00")) // what is behind it was only reserved
			b[header+(written-header)/2] ^= 1
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			s := &StartSheet{
				LogStored: 51,
				Positions: map[string][]ledger.Position{"a": {{Device: 1, Epoch: 1, Last: 50}}},
			}
			s.Sheet.Ports = []ledger.Port{{ID: "a"}}
			_, err = s.Replay(log, streams, nil)
			if damage := (*seglog.CorruptError)(nil); !errors.As(err, &damage) {
				t.Errorf("Replay: %v", err)
			}
			if got := s.Sheet.Ports[0].Frames.Missing; got != uint64(c.lost) {
				t.Errorf("%d frames are missing, want %d", got, c.lost)
			}
			ps := s.Positions["a"]
			switch {
			case c.tail:
				if len(ps) > 0 && ps[0].Last < 599 {
					t.Errorf("the device is at %+v: what cannot be read would be called missing", ps)
				}
			case len(ps) != 1 || ps[0].Last != 599+uint64(c.lost):
				t.Errorf("the device is at %+v", ps)
			}
		})
	}
}
