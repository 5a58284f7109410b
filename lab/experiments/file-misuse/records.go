package filemisuse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/tallywheel/tallywheel/lab/bigfile"
)

const record = 128

// scanner takes binary data for "lines" of any length, and makes a string of each.
func scanner(f *os.File) (n int, k uint64, err error) {
	s := bufio.NewScanner(f)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i+1], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	for ; s.Scan(); k++ {
		n += len(s.Text())
	}
	return n, k, s.Err()
}

// reads are of so many bytes, whose records are taken in place, as one should. All passes of a turn
// have one buffer: to make one for each is garbage that the way to read does not ask for.
func reads(size int) bigfile.Pass {
	var b []byte
	return func(f *os.File) (int, uint64, error) {
		if b == nil {
			b = make([]byte, size)
		}
		return recordsOf(f, b)
	}
}

// buffered takes each record out of a bufio.Reader with its 4 KiB, which is one for all passes.
func buffered() bigfile.Pass {
	var r *bufio.Reader
	one := make([]byte, record)
	return func(f *os.File) (n int, k uint64, err error) {
		if r == nil {
			r = bufio.NewReader(nil)
		}
		for r.Reset(f); ; k++ {
			if _, err := io.ReadFull(r, one); err == io.EOF {
				return n, k, nil
			} else if err != nil {
				return n, k, err
			}
			n += record
		}
	}
}

func recordsOf(f *os.File, b []byte) (n int, k uint64, err error) {
	for {
		m, err := io.ReadFull(f, b)
		n += m
		k += uint64(m / record)
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, k, nil
		} else if err != nil {
			return n, k, err
		}
	}
}
