package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/tallywheel/tallywheel/proof"
)

// The files that prove what the log holds: FORMAT.md draws them.
const (
	headsFile      = "heads"
	checkpointFile = "checkpoint"
)

// entry is the frame as a leaf of its segment's tree.
func (f rawFrame) entry() proof.Entry {
	return proof.Entry{Seq: f.seq, Time: f.time, Stream: f.stream, Kind: f.kind, Data: f.data}
}

// addEntries shows the frames of a batch to what makes the head of their segment. They were made by
// this process: nothing is checked.
func addEntries(to *proof.Segment, b []byte) {
	for len(b) > 0 {
		f := parseFrame(b)
		to.Add(f.entry())
		b = b[f.size:]
	}
}

// eachHead calls f with each head of the log, up to the first one that is not whole. It returns how
// many there are, and how many bytes behind them are not zero. A file that is missing has none.
func eachHead(dir FS, f func(leaf int64, h proof.Head)) (n, rest int64, err error) {
	file, err := dir.Open(headsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 512*proof.HeadBytes)
	for whole := true; whole && n*proof.HeadBytes < size; {
		got, err := file.ReadAt(buf, n*proof.HeadBytes)
		if err != nil && err != io.EOF {
			return n, 0, fmt.Errorf("read %s: %w", headsFile, err)
		}
		whole = got == len(buf)
		for b := buf[:got]; len(b) >= proof.HeadBytes; b = b[proof.HeadBytes:] {
			h, ok := proof.DecodeHead(b, n)
			if !ok {
				whole = false
				break
			}
			f(n, h)
			n++
		}
	}
	end, err := lastNonZero(file, n*proof.HeadBytes, size)
	return n, end - n*proof.HeadBytes, err
}

// readCheckpoint is the newest checkpoint of a log; nil: there is none.
func readCheckpoint(dir FS) ([]byte, error) {
	f, err := dir.Open(checkpointFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, proof.MaxCheckpoint+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", checkpointFile, err)
	}
	return b[:n], nil
}

// writeCheckpoint puts a checkpoint in the place of the one before.
func writeCheckpoint(dir FS, text []byte) error {
	if was, err := readCheckpoint(dir); err == nil && bytes.Equal(was, text) {
		return nil
	}
	f, err := dir.Create(checkpointFile + partSuffix)
	if err != nil {
		return err
	}
	err = writeAll(f, text, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(checkpointFile+partSuffix, checkpointFile)
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", checkpointFile, err)
	}
	return nil
}

// copyAside keeps a copy of a file beside the log, under the name that setAside would give it.
func copyAside(dir FS, name string) (to string, err error) {
	if to, err = nameAside(dir, name, damagedSuffix); err != nil {
		return "", err
	}
	from, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer from.Close()
	f, err := dir.Create(to)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	for off := int64(0); ; off += int64(len(buf)) {
		n, readErr := from.ReadAt(buf, off)
		if err = writeAll(f, buf[:n], off); err == nil && readErr != io.EOF {
			err = readErr
		}
		if err != nil || n < len(buf) {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return to, errors.Join(err, f.Close())
}
