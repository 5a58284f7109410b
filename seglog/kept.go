package seglog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// A log that removes its oldest segments by itself has an empty file whose name says which record
// it keeps first. The name changes before a segment goes. So where older segments than it says are
// gone nothing is missing, and where younger ones are gone the log has not removed them.

const keptPrefix = "first."

// kept is what such a name says.
type kept struct {
	first uint64
	log   string // the beginning of its identity, in hexadecimal
}

func newKept(first uint64, log [16]byte) kept { return kept{first, hex.EncodeToString(log[:4])} }

func (k kept) name() string { return fmt.Sprintf("%s%020d.%s", keptPrefix, k.first, k.log) }

// keptOf is what a name says, if it is one of those.
func keptOf(name string) (k kept, ok bool) {
	rest, ok := strings.CutPrefix(name, keptPrefix)
	first, log, dot := strings.Cut(rest, ".")
	n, segment := segmentBase(first + segmentSuffix)
	k = kept{n, log}
	return k, ok && dot && segment && k.name() == name
}

// knowing is what is known of the log of that identity, its own word for its first record among it.
func (t traces) knowing(known Extent, log [16]byte) Extent {
	known.First = max(known.First, t.keptBy(log).first)
	return known
}

// keptBy is the word of the log of that identity; its first is 0 if there is none. A power cut can
// leave the name before beside it.
func (t traces) keptBy(log [16]byte) (k kept) {
	for _, o := range t.kept {
		if o.log == newKept(0, log).log && o.first > k.first {
			k = o
		}
	}
	return k
}

// keptFirst is the first record that the log of these segments says it keeps; 0 if it does not say.
func keptFirst(dir FS, heads []head) (uint64, error) {
	names, err := dir.List()
	var said traces
	for _, name := range names {
		if k, ok := keptOf(name); ok {
			said.kept = append(said.kept, k)
		}
	}
	id, _ := identify(heads, [16]byte{})
	return said.keptBy(id).first, err
}

// removes reports whether the log removes its oldest segments by itself.
func (c Config) removes() bool { return c.KeepBytes > 0 || c.KeepAge > 0 || c.OnFull == DropOldest }

// settle forgets the traces of what is missing, which has been told, and says from which record on
// the log keeps what it has. One that cannot say so goes on all the same.
func (l *Log) settle(found traces) error {
	if err := found.forget(l.cfg.FS); err != nil {
		return err
	}
	first, _ := l.shelf.extent()
	if first == 0 {
		first = l.seg.base
	}
	was, now := found.keptBy(l.identity), newKept(first, l.identity)
	for _, k := range found.kept {
		if k != was {
			_ = l.cfg.FS.Remove(k.name())
		}
	}
	err := errNoKept
	switch {
	case was.first >= first: // retention goes on where it was ended
		now, err = was, nil
	case was.first > 0:
		err = l.cfg.FS.Rename(was.name(), now.name())
	case l.cfg.removes():
		var f File
		if f, err = l.cfg.FS.Create(now.name()); err == nil {
			err = f.Close()
		}
	}
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	if l.shelf.kept = (kept{}); err == nil {
		l.shelf.kept = now
	}
	return nil
}

var errNoKept = errors.New("no word of the first record")

// keepFrom says that the log keeps what it has from a record on, before what is older goes. mu is
// held.
func (s *shelf) keepFrom(first uint64) error {
	was, now := s.kept, kept{first, s.kept.log}
	if first <= was.first || was == (kept{}) {
		return nil
	}
	err := s.cfg.FS.Rename(was.name(), now.name())
	if errors.Is(err, fs.ErrNotExist) { // somebody has removed it: nothing can be told by it
		s.kept = kept{}
		return nil
	}
	if err == nil {
		s.kept = now
	}
	return err
}
