package logs

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/seglog"
)

// keeping is a file that hands over what is written.
type keeping struct {
	seglog.File
	wrote func(b []byte)
}

func (f keeping) WriteAt(b []byte, off int64) (int, error) {
	f.wrote(b)
	return f.File.WriteAt(b, off)
}

// TestAloneBytes: what stands for the log where only its disk is asked for writes blocks as large
// as the log's own.
func TestAloneBytes(t *testing.T) {
	record := bytes.Repeat([]byte("a record"), 16)
	var mu sync.Mutex
	var sizes []int
	fs, err := seglog.DirWith(t.TempDir(), func(path string, create bool) (seglog.File, error) {
		f, err := asyncfile.Open(path, asyncfile.Config{Backend: asyncfile.Std, Write: true, Create: create})
		return keeping{f, func(b []byte) {
			if bytes.Contains(b, record) { // not what makes segments ready meanwhile
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(b))
			}
		}}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: fs, Sync: seglog.SyncAlways, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := log.Append(0, 1, record); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(sizes, []int{AloneBytes, AloneBytes, AloneBytes}) {
		t.Errorf("three records, one by one, are writes of %v bytes; want %d each", sizes, AloneBytes)
	}
}

// TestTellsEveryPartThatFailed: what a turn says of its chains has each part that failed, by the
// kind of its error, in one line, whether the turn has figures or not.
func TestTellsEveryPartThatFailed(t *testing.T) {
	c := asyncfile.ChainCounts{
		Chains: 9, Whole: 6, Parts: 90, Written: 80,
		Errors: map[syscall.Errno]uint64{syscall.EIO: 2, syscall.ENOSPC: 1},
		Failed: map[asyncfile.ChainFailure]uint64{
			{Kind: syscall.EIO, Index: 3}: 1, {Kind: syscall.EIO, Index: 7}: 1, {Kind: syscall.ENOSPC, Index: 63}: 1,
		},
		LastIndex: 63,
	}
	var out strings.Builder
	turn, err := contestant.New([]string{"linked"}, strings.NewReader(""), &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := tell(turn, c, nil); err != nil {
		t.Fatal(err)
	}
	failed := tell(turn, c, io.ErrShortWrite)
	if !errors.Is(failed, io.ErrShortWrite) {
		t.Errorf("%v", failed)
	}
	for _, text := range []string{out.String(), failed.Error()} {
		for _, want := range []string{"×2 at index 3, 7", "×1 at index 63", "6 of 9 batches whole"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
		if strings.Contains(strings.TrimSpace(text), "\n") {
			t.Errorf("%q has several lines", text)
		}
	}
}
