// Package fault is a directory in memory that behaves as badly as a disk may: it can be cut off at
// any moment, and it can be told to fail.
//
// # The model of a power cut
//
// A write is durable once Sync of its file has returned without an error. Before that, each of its
// sectors of 512 bytes may or may not have reached the disk, whatever happened to the others. A
// name (created, renamed, removed) is durable once Sync of the directory has returned; before that,
// any prefix of the changes may have. [Dir.Crash] returns a directory in one of the states that
// this allows, chosen by a seed.
//
// # The model of a failed sync
//
// When Sync fails, what was written since the last success is in doubt: it stays readable, a later
// Sync reports success, and a cut may take it all the same. Linux does just that. Only what is
// written once more can become durable.
package fault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

const sector = 512

// Op is an operation that may be made to fail.
type Op string

// Operations.
const (
	OpWrite   Op = "write"
	OpSync    Op = "sync"
	OpSyncDir Op = "syncdir"
	OpCreate  Op = "create"
	OpRename  Op = "rename"
	OpOpen    Op = "open"
	OpRead    Op = "read"
	OpRemove  Op = "remove"
	OpList    Op = "list"
)

// ErrLocked is what Lock gives while another lock is held.
var ErrLocked = errors.New("fault: directory is locked")

// Dir is a directory of files in memory. Its methods are safe for concurrent use.
type Dir struct {
	mu      sync.Mutex
	names   map[string]*inode
	durable map[string]*inode // names after a cut with nothing else surviving
	changes []change          // since the last sync of the directory
	locked  bool
	free    int64 // bytes that may still be allocated; < 0: no limit

	// Inject, when set, is asked before each operation; an error makes it fail. For OpWrite, short
	// ≥ 0 bytes of it are written all the same.
	inject func(op Op, name string) (short int, err error)
}

type change struct {
	name string
	node *inode // nil: removed
}

type inode struct {
	name    string // the newest
	data    []byte
	stable  []byte         // contents as of the last good sync
	dirty   map[int64]bool // sectors written since
	doubted map[int64]bool // sectors that a failed sync left in doubt
}

// New returns an empty directory without a limit of space.
func New() *Dir {
	return &Dir{names: map[string]*inode{}, durable: map[string]*inode{}, free: -1}
}

// SetInject replaces the script of failures; nil ends it.
func (d *Dir) SetInject(f func(op Op, name string) (short int, err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inject = f
}

// SetFree limits the bytes that may still be allocated; < 0 lifts the limit.
func (d *Dir) SetFree(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = n
}

// Crash returns a directory in a state that a power cut now may leave, chosen by seed. The
// directory itself goes on.
func (d *Dir) Crash(seed uint64) *Dir {
	d.mu.Lock()
	defer d.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0xC4A54))
	c := New()
	survived := maps.Clone(d.durable)
	for _, ch := range d.changes[:rng.IntN(len(d.changes)+1)] {
		apply(survived, ch)
	}
	clones := map[*inode]*inode{}
	names := slices.Sorted(maps.Keys(survived))
	for _, name := range names { // in order, so that the seed decides alone
		n := survived[name]
		if clones[n] == nil {
			clones[n] = n.crash(rng)
		}
		c.names[name], c.durable[name] = clones[n], clones[n]
	}
	return c
}

func apply(names map[string]*inode, ch change) {
	if ch.node == nil {
		delete(names, ch.name)
	} else {
		names[ch.name] = ch.node
	}
}

func (n *inode) crash(rng *rand.Rand) *inode {
	out := slices.Clone(n.stable)
	dirty := slices.Collect(maps.Keys(n.dirty))
	dirty = slices.AppendSeq(dirty, maps.Keys(n.doubted))
	slices.Sort(dirty)
	odds := rng.IntN(11) // of ten: from nothing to everything survives
	for _, s := range slices.Compact(dirty) {
		if rng.IntN(10) >= odds {
			continue
		}
		from, to := s*sector, min((s+1)*sector, int64(len(n.data)))
		if from >= to {
			continue
		}
		if grow := to - int64(len(out)); grow > 0 {
			out = append(out, make([]byte, grow)...)
		}
		copy(out[from:to], n.data[from:to])
	}
	return &inode{
		name: n.name, data: out, stable: slices.Clone(out), dirty: map[int64]bool{},
		doubted: map[int64]bool{},
	}
}

// Flip inverts one bit of a file, as a failing disk may.
func (d *Dir) Flip(name string, offset int64, bit uint) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	if n == nil || offset >= int64(len(n.data)) {
		return fmt.Errorf("flip %s at %d: %w", name, offset, fs.ErrNotExist)
	}
	n.data[offset] ^= 1 << (bit & 7)
	if offset < int64(len(n.stable)) {
		n.stable[offset] ^= 1 << (bit & 7)
	}
	return nil
}

// Copy returns the directory as it is seen now: what a process that is killed leaves. All of it is
// durable.
func (d *Dir) Copy() *Dir {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := New()
	for name, n := range d.names {
		to := &inode{
			name: n.name, data: slices.Clone(n.data), stable: slices.Clone(n.data), dirty: map[int64]bool{},
			doubted: map[int64]bool{},
		}
		c.names[name], c.durable[name] = to, to
	}
	return c
}

// Cut shortens a file for good, as a stranger's program or a file system check may.
func (d *Dir) Cut(name string, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	if n == nil || size > int64(len(n.data)) {
		return fmt.Errorf("cut %s to %d bytes: %w", name, size, fs.ErrNotExist)
	}
	n.data = n.data[:size:size]
	n.stable = n.stable[:min(int64(len(n.stable)), size)]
	return nil
}

// Bytes returns a copy of a file's contents.
func (d *Dir) Bytes(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.names[name]; n != nil {
		return slices.Clone(n.data)
	}
	return nil
}

func (d *Dir) fails(op Op, name string) (short int, err error) {
	if d.inject == nil {
		return 0, nil
	}
	return d.inject(op, name)
}

// Create opens a new, empty file for reading and writing.
func (d *Dir) Create(name string) (*File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails(OpCreate, name); err != nil {
		return nil, err
	}
	n := &inode{name: name, dirty: map[int64]bool{}, doubted: map[int64]bool{}}
	d.names[name] = n
	d.changes = append(d.changes, change{name, n})
	return &File{d, n}, nil
}

// Open opens an existing file for reading and writing.
func (d *Dir) Open(name string) (*File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails(OpOpen, name); err != nil {
		return nil, err
	}
	n := d.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &File{d, n}, nil
}

// Rename gives a file another name.
func (d *Dir) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails(OpRename, from); err != nil {
		return err
	}
	n := d.names[from]
	if n == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(d.names, from)
	d.names[to], n.name = n, to
	d.changes = append(d.changes, change{to, n}, change{from, nil})
	return nil
}

// Remove takes a name away.
func (d *Dir) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails(OpRemove, name); err != nil {
		return err
	}
	n := d.names[name]
	if n == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if d.free >= 0 {
		d.free += int64(len(n.data))
	}
	delete(d.names, name)
	d.changes = append(d.changes, change{name, nil})
	return nil
}

// List returns the names.
func (d *Dir) List() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails(OpList, ""); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(d.names)), nil
}

// Sync makes the names durable.
func (d *Dir) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails(OpSyncDir, ""); err != nil {
		return err
	}
	for _, ch := range d.changes {
		apply(d.durable, ch)
	}
	d.changes = nil
	return nil
}

// Track returns a function that reports whether name still stands for the file that it stands for
// now.
func (d *Dir) Track(name string) (same func() (bool, error), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return func() (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.names[name] == n, nil
	}, nil
}

// FreeBytes is the space left.
func (d *Dir) FreeBytes() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free < 0 {
		return 1 << 50, nil
	}
	return d.free, nil
}

// Lock keeps others out until it is closed.
func (d *Dir) Lock() (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, ErrLocked
	}
	d.locked = true
	return unlock{d}, nil
}

type unlock struct{ d *Dir }

func (u unlock) Close() error {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	u.d.locked = false
	return nil
}
