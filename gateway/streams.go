package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Stream says whose records carry a stream number of the log. The table is kept beside the log: numbers are given once
// and stay, so records of sources that are gone keep their names.
type Stream struct {
	Number     uint32 `json:"stream"`
	Source     string `json:"source"`
	Frame      string `json:"frame"`      // framing, by name
	Quarantine bool   `json:"quarantine"` // bytes that were no frame, behind their offset
}

const streamsFile = "streams.json"

// Streams is the table of a log.
type Streams struct {
	dir string
	mu  sync.RWMutex
	all []Stream
}

// LoadStreams reads the table of the log in dir; a log without one is new.
func LoadStreams(dir string) (*Streams, error) {
	s := &Streams{dir: dir}
	b, err := os.ReadFile(filepath.Join(dir, streamsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s.all)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, streamsFile), err)
	}
	return s, nil
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

// number returns the stream number for what is described, a new one if need be, which is durable when it returns.
func (s *Streams) number(want Stream) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		want.Number = max(want.Number, e.Number)
		if e.Source == want.Source && e.Frame == want.Frame && e.Quarantine == want.Quarantine {
			return e.Number, nil
		}
	}
	want.Number++
	all := append(s.all[:len(s.all):len(s.all)], want)
	b, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = replaceFile(filepath.Join(s.dir, streamsFile), b, true)
	}
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", streamsFile, err)
	}
	s.all = all
	return want.Number, nil
}

// replaceFile puts a whole file in the place of another, durably where asked.
func replaceFile(path string, b []byte, durable bool) (err error) {
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".part", path); err != nil || !durable {
		return err
	}
	return sys.SyncDir(filepath.Dir(path))
}
