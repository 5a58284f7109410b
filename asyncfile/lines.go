package asyncfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Lines cuts a file into lines, reading it by large chunks and returning views of them: nothing is
// copied or allocated for a line. A line ends with LF, which is not part of it; the last one may
// lack it.
//
//	lines := asyncfile.NewLines(file, 0)
//	for lines.Next() {
//		use(lines.Bytes())
//	}
//	if err := lines.Err(); err != nil …
type Lines struct {
	r      io.ReaderAt
	buf    []byte
	line   []byte
	lo, hi int   // buf[lo:hi] has been read and not returned
	at     int64 // offset of buf[hi]
	start  int64 // offset of line
	ended  bool
	err    error
}

const (
	lineChunk = 256 << 10
	maxLine   = 64 << 20
)

// NewLines reads from the start of r by chunks of size bytes, at most 64 MiB; 0 means 256 KiB. A
// line may be longer: the chunk grows up to 64 MiB.
func NewLines(r io.ReaderAt, size int) *Lines {
	if size <= 0 {
		size = lineChunk
	}
	if r == nil {
		return &Lines{ended: true, err: errors.New("lines: no file")}
	}
	return &Lines{r: r, buf: make([]byte, min(size, maxLine))}
}

// Next moves to the next line and reports whether there is one.
func (l *Lines) Next() bool {
	if i := bytes.IndexByte(l.buf[l.lo:l.hi], '\n'); i >= 0 {
		l.line = l.buf[l.lo : l.lo+i]
		l.start = l.at - int64(l.hi-l.lo)
		l.lo += i + 1
		return true
	}
	return l.more()
}

// more reads on until there is a whole line, or no more.
func (l *Lines) more() bool {
	for !l.ended {
		seen := l.hi - l.lo // searched already
		if l.lo > 0 {
			copy(l.buf, l.buf[l.lo:l.hi])
			l.lo, l.hi = 0, seen
		}
		if l.hi == len(l.buf) {
			if len(l.buf) >= maxLine {
				l.ended, l.err = true,
					fmt.Errorf("line at %d: longer than %d bytes; is this a text file?", l.at-int64(seen), maxLine)
				break
			}
			l.buf = append(l.buf, make([]byte, len(l.buf))...)
		}
		// No LF in what is there: only what comes needs to be searched.
		n, err := l.r.ReadAt(l.buf[l.hi:], l.at)
		l.hi, l.at = l.hi+n, l.at+int64(n)
		if err != nil {
			l.ended = true
			if err != io.EOF {
				l.err = err
			}
		}
		if i := bytes.IndexByte(l.buf[seen:l.hi], '\n'); i >= 0 {
			l.line, l.lo = l.buf[:seen+i], seen+i+1
			l.start = l.at - int64(l.hi)
			return true
		}
	}
	if l.err == nil && l.lo < l.hi {
		l.line = l.buf[l.lo:l.hi]
		l.start = l.at - int64(l.hi-l.lo)
		l.lo = l.hi
		return true
	}
	l.line = nil
	return false
}

// Bytes is the line, without its LF. It is valid until the next call of Next.
func (l *Lines) Bytes() []byte { return l.line }

// Offset is where the line starts in the file.
func (l *Lines) Offset() int64 { return l.start }

// Err is what ended the lines, nil at the end of the file.
func (l *Lines) Err() error { return l.err }
