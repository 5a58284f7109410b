package sys

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
)

// NoOrdinaryFile is what is wrong with a pipe, a device or a folder in the place of a file.
type NoOrdinaryFile struct{ Path string }

func (e *NoOrdinaryFile) Error() string { return e.Path + " is no ordinary file: move it away" }

// OpenOrdinary opens an ordinary file. A pipe or a device under its name would keep the caller
// waiting for ever: it is opened without waiting, and is a [NoOrdinaryFile]. What is only written
// may be a device: it keeps nobody waiting, and has errors of its own.
func OpenOrdinary(path string, flag int, perm os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, perm)
	if err != nil {
		if st, statErr := os.Stat(path); statErr == nil && !st.Mode().IsRegular() {
			return nil, &NoOrdinaryFile{path}
		}
		return nil, err
	}
	st, err := f.Stat()
	written := flag&(os.O_WRONLY|os.O_RDWR) != 0
	if err == nil && !st.Mode().IsRegular() && !(written && st.Mode()&os.ModeCharDevice != 0) {
		err = &NoOrdinaryFile{path}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// CreateBeside makes a file that is to take the place of path by a rename, in the same folder. Its
// name is new, and no link is followed: whoever else may write into that folder cannot have the
// caller write into a file of their choice. flag is what [os.OpenFile] takes, to write with.
func CreateBeside(path string, flag int, perm os.FileMode) (*os.File, error) {
	for {
		name := fmt.Sprintf("%s.new-%08x", path, rand.Uint32())
		f, err := os.OpenFile(name, flag|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// ReadOrdinary reads a whole ordinary file of at most so many bytes; a larger one is an error.
func ReadOrdinary(path string, most int64) ([]byte, error) {
	f, err := OpenOrdinary(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, most)
}

// ReadFileOrPipe is [ReadOrdinary] that also takes a pipe, and waits for who writes into it.
func ReadFileOrPipe(path string, most int64) ([]byte, error) {
	if st, err := os.Stat(path); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		return ReadOrdinary(path, most)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, most)
}

func readAll(f *os.File, path string, most int64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	large := fmt.Errorf("%s has more than %d bytes", path, most)
	if st.Size() > most {
		return nil, large
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1)) // it may grow meanwhile
	if err == nil && int64(len(b)) > most {
		err = large
	}
	return b, err
}
