package filelines

import (
	"bufio"
	"io"
	"os"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

func scannerText(f *os.File) (n int, k uint64, err error) {
	s := bufio.NewScanner(f)
	for ; s.Scan(); k++ {
		n += len(s.Text()) + 1
	}
	return n, k, s.Err()
}

func scannerBytes(f *os.File) (n int, k uint64, err error) {
	s := bufio.NewScanner(f)
	for ; s.Scan(); k++ {
		n += len(s.Bytes()) + 1
	}
	return n, k, s.Err()
}

func readSlice(f *os.File) (n int, k uint64, err error) {
	for r := bufio.NewReaderSize(f, 64<<10); ; k++ {
		b, err := r.ReadSlice('\n')
		n += len(b)
		if err == io.EOF {
			return n, k, nil
		} else if err != nil {
			return n, k, err
		}
	}
}

// byLines cuts it by asyncfile.Lines.
func byLines(b bigfile.Backend) contestant.Work {
	return func(t *contestant.Turn) error {
		path := t.Text("file")
		return bigfile.Passes(t, path, func() (n int, k uint64, err error) {
			f, err := asyncfile.Open(path, b.Config)
			if err != nil {
				return 0, 0, err
			}
			defer f.Close()
			l := asyncfile.NewLines(f, 0)
			for ; l.Next(); k++ {
				n += len(l.Bytes()) + 1
			}
			return n, k, l.Err()
		})
	}
}
