package archive

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/seglog"
)

// maxSide is the most bytes of a file beside the log that is read whole: far more than the sheet of
// as many devices as are followed takes.
const maxSide = 256 << 20

// openSide opens a file beside the log, if it is an ordinary one.
func openSide(path string, flag int) (*os.File, error) {
	return sys.OpenOrdinary(path, flag, seglog.FilePerm)
}

// writeSide writes a file beside the log, and syncs it.
func writeSide(path string, flag int, b []byte) error {
	f, err := openSide(path, os.O_WRONLY|flag)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// isFull reports whether err says that there is no room.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// mayReuse reports whether the room of one file may be used for another, which takes its place: the
// two are files, and the first has no other name, as in a backup made of hard links.
func mayReuse(of, by string) bool {
	st, err := os.Lstat(of)
	if err != nil || !st.Mode().IsRegular() || sys.Links(st) > 1 {
		return false
	}
	st, err = os.Lstat(by)
	return errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode().IsRegular()
}

// reuse makes a file of text in the room of another, where the disk has no other room. What was in
// that is gone.
func reuse(of, path string, b []byte) error {
	if err := os.Rename(of, path); err != nil {
		return err
	}
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	text := bytes.TrimRight(b, " \n")
	return writeSide(path, 0, paddedTo(text, max(int(st.Size()), len(text)+1)))
}

// A sheet has room behind it, in the blocks of its file, by which the next ones may be longer on a
// full disk.
const (
	block = 4096 // bytes; of file systems with larger ones, a part
	slack = 2048
)

// padded is JSON with room behind it.
func padded(b []byte) []byte { return paddedTo(b, (len(b)+slack+block-1)/block*block) }

// paddedTo is JSON with white space behind it, up to n bytes.
func paddedTo(b []byte, n int) []byte {
	b = append(slices.Clip(b), bytes.Repeat([]byte{' '}, n-len(b))...)
	b[n-1] = '\n'
	return b
}

// readSide reads a whole file beside the log.
func readSide(path string) ([]byte, error) { return sys.ReadOrdinary(path, maxSide) }

// OpenHistory opens the sheets of the starts that have ended on the log in dir.
func OpenHistory(dir string) (*os.File, error) {
	return openSide(filepath.Join(dir, HistoryFile), os.O_RDONLY)
}
