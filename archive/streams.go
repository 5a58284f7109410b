package archive

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/proof"
)

// Stream says whose records carry a stream number of the log. The table is kept beside the log:
// numbers are given once and stay, so records of sources that are gone keep their names.
type Stream struct {
	Number     uint32 `json:"stream"`
	Source     string `json:"source"`
	Frame      string `json:"frame"`      // framing, by name
	Quarantine bool   `json:"quarantine"` // bytes that were no frame, behind their offset
}

// The table is there twice. The copy is written first, and each before a number is given, so either
// has all that the log's records need.
const (
	// StreamsFile is the name of the table.
	StreamsFile = "streams.json"
	streamsCopy = "streams.json.copy"
)

// ErrStreams is a table of streams that is damaged, and so is its copy. The log has numbers alone,
// so nothing else says whose its records are.
var ErrStreams = errors.New("the table of streams is damaged; bring it back from a copy, with the recorder stopped; " +
	"or move it away, and streams.json.copy: no record is lost, but older records then have numbers in place of names")

// Streams is the table of a log.
type Streams struct {
	dir   string
	mu    sync.RWMutex
	all   []Stream
	harm  error
	from  uint32   // no number below is given
	aside []string // see TakeAside

	looked fs.FileInfo // of the table that asked has read; nil: of none
}

// Harm is why the table could not be read: its copy served. nil: it could.
func (s *Streams) Harm() error { return s.harm }

// errOlder is a table that is not the last one that was written.
var errOlder = errors.New("it is older than its copy")

// LoadStreams reads the table of the log in dir, or its copy where it is gone, cannot be read or is
// older; a log without either is new. Where both are damaged it is ErrStreams. Nothing is changed.
func LoadStreams(dir string) (*Streams, error) {
	table, err := readStreams(filepath.Join(dir, StreamsFile))
	all, copyErr := readStreams(filepath.Join(dir, streamsCopy))
	if err == nil && copyErr == nil && goesOn(table, all) {
		err = errOlder
	}
	if err == nil {
		return &Streams{dir: dir, all: table}, nil
	}
	gone := errors.Is(err, fs.ErrNotExist)
	switch {
	case copyErr == nil:
		return &Streams{dir: dir, all: all, harm: err}, nil
	case gone && errors.Is(copyErr, fs.ErrNotExist):
		return &Streams{dir: dir}, nil
	case !gone && !errors.Is(err, errTorn):
		return nil, err
	case gone && !errors.Is(copyErr, errTorn):
		return nil, copyErr
	}
	return nil, fmt.Errorf("read %s: %w (%w)", filepath.Join(dir, StreamsFile), ErrStreams, err)
}

// goesOn reports whether a table has all that an older one has, and more.
func goesOn(older, all []Stream) bool {
	return len(all) > len(older) && slices.Equal(older, all[:len(older)])
}

// errTorn is a table that is no JSON.
var errTorn = errors.New("it is damaged")

func readStreams(path string) (all []Stream, err error) {
	b, err := readSide(path)
	if err == nil {
		if err = json.Unmarshal(b, &all); err != nil {
			err = fmt.Errorf("%w (%w)", errTorn, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

// Mend writes the table and its copy anew where one of them cannot be read, or is not there.
func (s *Streams) Mend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied, err := readStreams(filepath.Join(s.dir, streamsCopy))
	if len(s.all) == 0 || s.harm == nil && err == nil && slices.Equal(copied, s.all) {
		return nil
	}
	return s.write(s.all)
}

// Restore writes the table anew if it, or its copy, is not there any more, or is no file, and
// reports whether it was so.
func (s *Streams) Restore() (gone bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{StreamsFile, streamsCopy} {
		st, err := os.Stat(filepath.Join(s.dir, name))
		gone = gone || err != nil || !st.Mode().IsRegular()
	}
	if !gone || len(s.all) == 0 {
		return false, nil
	}
	return true, s.write(s.all)
}

// TakeAside lists what has been set aside since it was asked last, by its new name: it stood in the
// place of the table, or of its copy, and was no file.
func (s *Streams) TakeAside() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, s.aside = s.aside, nil
	return names
}

// leastAnew is the least number that a table gives after one that is gone.
const leastAnew = 1 << 20

// BeginAnew is for a log whose records nobody can name any more, and reports whether this is the
// table of such a log. Numbers are then given from the seconds since 1970 on: the table that is
// gone gave none of them, so no record gets the name of another source.
func (s *Streams) BeginAnew(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) > 0 {
		return false
	}
	s.from = uint32(min(max(now.Unix(), leastAnew), math.MaxUint32-leastAnew))
	return true
}

// write brings a table to disk, twice. What is no file in its place is set aside first: nothing can
// take the name of a folder, and a link or a pipe is somebody's. mu is held.
func (s *Streams) write(all []Stream) error {
	b, err := json.MarshalIndent(all, "", "  ")
	for _, name := range []string{streamsCopy, StreamsFile} {
		path := filepath.Join(s.dir, name)
		if st, statErr := os.Lstat(path); err == nil && statErr == nil && !st.Mode().IsRegular() {
			var aside string
			if aside, err = setAside(path); err == nil {
				s.aside = append(s.aside, aside)
			}
		}
		if err == nil {
			err = replaceFile(path, "", b, true)
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", StreamsFile, err)
	}
	return nil
}

// maxAside is how many damaged tables, and sheets, are kept beside a log.
const maxAside = 100

// setAside gives what stands at path a name that is free, which it returns.
func setAside(path string) (aside string, err error) {
	for n := 1; n <= maxAside; n++ {
		if aside = path + ".damaged"; n > 1 {
			aside = fmt.Sprintf("%s.damaged.%d", path, n)
		}
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, os.Rename(path, aside)
		}
	}
	return "", fmt.Errorf("%s cannot be set aside: %d damaged ones are there; move them away", path, maxAside)
}

// NewStreams sets a damaged table aside, under a name that it returns, and begins another. It is
// for a log that has no record: there are no names to lose.
func NewStreams(dir string) (s *Streams, aside string, err error) {
	aside, err = setAside(filepath.Join(dir, StreamsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	// it is damaged, too
	if err := os.Remove(filepath.Join(dir, streamsCopy)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	return &Streams{dir: dir}, aside, sys.SyncDir(dir)
}

// By returns the entry of a number.
func (s *Streams) By(number uint32) (Stream, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.all {
		if e.Number == number {
			return e, true
		}
	}
	return Stream{}, false
}

// asked is By, of a table in a folder that is written to meanwhile: where a number is not there,
// the table is read again, if it is another file by now.
func (s *Streams) asked(number uint32) (Stream, bool) {
	if e, ok := s.By(number); ok {
		return e, true
	}
	st, err := os.Stat(filepath.Join(s.dir, StreamsFile))
	if err != nil {
		return Stream{}, false
	}
	s.mu.Lock()
	same := s.looked != nil && os.SameFile(s.looked, st) && s.looked.ModTime().Equal(st.ModTime())
	s.looked = st
	s.mu.Unlock()
	if same {
		return Stream{}, false
	}
	if now, err := LoadStreams(s.dir); err == nil {
		s.mu.Lock()
		if goesOn(s.all, now.all) {
			s.all = now.all
		}
		s.mu.Unlock()
	}
	return s.By(number)
}

// Named is what a number stands for, as the log's proofs say it.
func (s *Streams) Named(number uint32) proof.Stream {
	e, _ := s.By(number)
	return proof.Stream{Number: number, Source: e.Source, Frame: e.Frame, Quarantine: e.Quarantine}
}

// All lists the table.
func (s *Streams) All() []Stream {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.all)
}

// Unnamed lists those of the streams that the table does not name, in order.
func (s *Streams) Unnamed(streams iter.Seq[uint32]) (numbers []uint32) {
	for number := range streams {
		if _, ok := s.By(number); !ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// Sources lists the sources that the table names, in order.
func (s *Streams) Sources() (all []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.all {
		all = append(all, e.Source)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxNamed is how many sources an error names.
const maxNamed = 20

// KnownSource is an error that names those that are known, unless source selects one of them. "" is
// all of them.
func KnownSource(source string, known []string) error {
	if source == "" || slices.ContainsFunc(known, func(name string) bool { return Selects(source, name) }) {
		return nil
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	more := ""
	if n := len(known) - maxNamed; n > 0 {
		known, more = known[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("no source %q is known; there are %s%s", source, cmp.Or(strings.Join(known, ", "), "none"), more)
}

// Has reports whether the table names a source.
func (s *Streams) Has(source string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.all, func(e Stream) bool { return e.Source == source })
}

// Quarantines reports whether the table has a stream for bytes of a source that were no frame.
func (s *Streams) Quarantines(source string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.all, func(e Stream) bool { return e.Source == source && e.Quarantine })
}

// Peer is the name of one peer of a source, or of one of several that a peer is.
func Peer(source, name string) string { return source + "/" + name }

// Within reports whether a name is that of a source, or of a peer of it.
func Within(name, source string) bool {
	rest, ok := strings.CutPrefix(name, source)
	return ok && (rest == "" || rest[0] == '/')
}

// Selects reports whether a source is asked for: by its name, or that of the source whose peer it
// is, or by a pattern of either, in which * stands for any text without a slash, and ? for one
// character.
func Selects(asked, name string) bool {
	if Within(name, asked) {
		return true
	}
	if !strings.ContainsAny(asked, "*?") {
		return false
	}
	for end := 0; end < len(name); {
		more := strings.IndexByte(name[end+1:], '/')
		if end += 1 + more; more < 0 {
			end = len(name)
		}
		if ok, err := path.Match(asked, name[:end]); ok && err == nil {
			return true
		}
	}
	return false
}

// AddressOf is the name of the first peer of the address that a peer belongs to: the one without a
// number of its own. The name of a source is its own.
func AddressOf(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// Number returns the stream number for what is described, a new one if need be, which is durable
// when it returns.
func (s *Streams) Number(want Stream) (uint32, error) {
	numbers, err := s.Numbers([]Stream{want})
	if err != nil {
		return 0, err
	}
	return numbers[0], nil
}

// Numbers is Number for many, whose new numbers are durable by one write: either all of them are
// given, or none.
func (s *Streams) Numbers(wants []Stream) (numbers []uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, highest := s.all[:len(s.all):len(s.all)], uint32(0)
	for _, e := range all {
		highest = max(highest, e.Number)
	}
	for _, want := range wants {
		at := slices.IndexFunc(all, func(e Stream) bool {
			return e.Source == want.Source && e.Frame == want.Frame && e.Quarantine == want.Quarantine
		})
		if at < 0 {
			highest = max(highest+1, s.from)
			want.Number, at = highest, len(all)
			all = append(all, want)
		}
		numbers = append(numbers, all[at].Number)
	}
	if len(all) == len(s.all) {
		return numbers, nil
	}
	if err := s.write(all); err != nil {
		return nil, err
	}
	s.all = all
	return numbers, nil
}

// replaceFile puts a whole file in the place of another, which goes on as before where that is a
// name. The contents are synced before they have the name, and the name where asked. Whoever looks
// finds one of the two at path, at any moment. On a full disk the file of the name before has room.
func replaceFile(path, before string, b []byte, durable bool) (err error) {
	part := path + ".part"
	// what a link leads to, or another name, stays as it is
	if st, err := os.Stat(part); err != nil || st.Mode().IsRegular() {
		if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = writeSide(part, os.O_CREATE|os.O_TRUNC, b)
	if isFull(err) && before != "" && mayReuse(before, part) {
		err = reuse(before, part, b)
	}
	if err != nil {
		return err
	}
	// what is no file is not what was written here
	if st, err := os.Lstat(path); before != "" && err == nil && st.Mode().IsRegular() {
		if err := keep(path, before); err != nil {
			return err
		}
	}
	if err := os.Rename(part, path); err != nil || !durable {
		return err
	}
	return sys.SyncDir(filepath.Dir(path))
}

// keep gives a file the name before, too. Where a file can have only one name it loses its own.
func keep(path, before string) error {
	if st, err := os.Lstat(before); err == nil && st.IsDir() { // os.Remove takes one that is empty
		return &fs.PathError{Op: "keep", Path: before, Err: syscall.EISDIR}
	}
	if err := os.Remove(before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(path, before) == nil {
		return nil
	}
	return os.Rename(path, before)
}
