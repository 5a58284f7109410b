package logs

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

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
