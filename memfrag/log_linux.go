package memfrag

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// header is the first line of a log.
type header struct {
	Memfrag  int           `json:"memfrag"` // version of the form
	Began    int64         `json:"began"`   // ms since 1970
	Interval time.Duration `json:"interval_ns"`
	Page     uint64        `json:"page"`
	Huge     uint64        `json:"huge"`
	PID      int           `json:"pid,omitempty"`
	Born     string        `json:"born,omitempty"` // with PID, and Boot, names the process
	Boot     string        `json:"boot,omitempty"`
}

const (
	version = 1
	// MaxSamples is how many samples a log has: three days of one each 30 s, and more.
	MaxSamples = 10_000
	maxText    = 8 << 10 // bytes of a line
)

// samples is a log that is open.
type samples struct {
	name string
	file *os.File
	header
	all []Sample
}

// openLog opens a log, or makes one. What a kill has left of a last line is cut. The log of another
// process, or of another machine's boot, is refused: its curve would be of two.
func openLog(name string, h header) (*samples, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	l := &samples{name: name, file: f, header: h}
	if err := l.begin(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

func (l *samples) begin() error {
	if held, err := sys.Lock(l.file); held {
		return errors.New("another memfrag writes to it: give this one another --log")
	} else if err != nil {
		return err
	}
	was, all, whole, err := readLog(l.file)
	if err != nil {
		return err
	}
	if was == nil {
		if err := l.file.Truncate(0); err != nil {
			return err
		}
		return l.write(l.header)
	}
	switch h := l.header; {
	case was.PID != h.PID || was.Born != h.Born || h.PID != 0 && was.Boot != h.Boot:
		return fmt.Errorf("it is of %s, and not of %s: give another --log, or remove it", was.whose(), h.whose())
	case was.Page != h.Page || was.Huge != h.Huge:
		return errors.New("it is of a machine with pages of another size: give another --log, or remove it")
	case was.Interval != h.Interval:
		return fmt.Errorf("it has a sample each %v, and not each %v: give that --interval, or another --log",
			was.Interval, h.Interval)
	}
	l.header, l.all = *was, all
	return l.file.Truncate(whole)
}

func (h header) whose() string {
	if h.PID == 0 {
		return "the machine alone"
	}
	return fmt.Sprintf("process %d, which began %s ticks behind the boot %.8s", h.PID, h.Born, h.Boot)
}

// readLog reads a log as far as it is whole. was is nil if there is none.
func readLog(r io.Reader) (was *header, all []Sample, whole int64, err error) {
	in := bufio.NewReaderSize(r, maxText)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && was == nil && !begins(line):
			return nil, nil, 0, fmt.Errorf("this is no log of memfrag: it begins with %.40q", line)
		case errors.Is(err, io.EOF):
			return was, all, whole, nil // what is there of a line was cut off
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, nil, 0, fmt.Errorf("line %d is longer than any of a log of memfrag", n)
		case err != nil:
			return nil, nil, 0, err
		}
		var h header
		var s Sample
		switch {
		case was == nil:
			if err := json.Unmarshal(line, &h); err != nil || h.Memfrag != version {
				return nil, nil, 0, fmt.Errorf("this is no log of memfrag, or of another version: line 1 is %.40q",
					line)
			}
			was = &h
		case json.Unmarshal(line, &s) != nil || s.At == 0:
			return nil, nil, 0, fmt.Errorf("line %d is no sample: %.40q", n, line)
		case len(all) >= 2*MaxSamples:
			return nil, nil, 0, fmt.Errorf("it has more than %d samples: this is no log of memfrag", 2*MaxSamples)
		default:
			all = append(all, s)
		}
		whole += int64(len(line))
	}
}

// begins reports whether b may be what a kill has left of the first line of a log.
func begins(b []byte) bool {
	const first = `{"memfrag":`
	return strings.HasPrefix(first, string(b)) || strings.HasPrefix(string(b), first)
}

// write writes a line, by one call: a kill leaves all of it or a part that readLog leaves out.
func (l *samples) write(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.file.Write(append(b, '\n'))
	}
	return err
}

// add keeps a sample.
func (l *samples) add(s Sample) error {
	if err := l.write(s); err != nil {
		return err
	}
	if l.all = append(l.all, s); len(l.all) < MaxSamples {
		return nil
	}
	return l.thin()
}

// thin leaves out each second sample of the older half. A file is written beside, and takes the
// name; so a kill leaves either.
func (l *samples) thin() error {
	var kept []Sample
	for i, s := range l.all {
		if i >= len(l.all)/2 || i%2 == 0 {
			kept = append(kept, s)
		} else if before := &kept[len(kept)-1]; before.Blocks == nil {
			before.Blocks = s.Blocks // few samples have them
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	err := enc.Encode(l.header)
	for _, s := range kept {
		err = errors.Join(err, enc.Encode(s))
	}
	if err != nil {
		return err
	}
	f, err := sys.CreateBeside(l.name, os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes())
	if err == nil {
		_, err = sys.Lock(f)
	}
	if err == nil {
		err = os.Rename(f.Name(), l.name)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	old := l.file
	l.file, l.all = f, kept
	return old.Close()
}
