package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// left is what the process before has left in the store of systemd, which this one has as its
// descriptors from 3 on (sd_listen_fds(3)).
type left struct {
	fds     map[string]int // by name; the names are ours
	entries []storeRecord
	state   string // the file of records that counts
	end     int64  // of it
}

// listenVariables tell a process what it was given. Its children are given nothing.
var listenVariables = []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"}

// leftInStore reads what the process before has left; nil: nothing. An error says why that cannot
// be gone on with.
func leftInStore() (*left, error) {
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n <= 0 || os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	const first = 3
	l := &left{fds: map[string]int{}}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for i := range min(n, len(names)) {
		if strings.HasPrefix(names[i], storeNames) {
			l.fds[names[i]] = first + i
		}
	}
	if len(l.fds) == 0 {
		return nil, nil
	}
	return l, l.read()
}

// read finds the newest file of records, and reads it.
func (l *left) read() error {
	newest, number := "", uint64(0)
	for name := range l.fds {
		if kind, rest, _ := cutLast(name); kind == stateNames && (newest == "" || rest > number) {
			newest, number = name, rest
		}
	}
	if newest == "" {
		return errors.New("what it has of ports and connections has no list")
	}
	fd, err := sys.Dup(l.fds[newest])
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), newest)
	defer f.Close()
	size, err := sys.SealedSize(fd)
	if err == nil {
		l.entries, l.end, err = records(f, size)
	}
	if err != nil {
		return fmt.Errorf("the list of what it has: %w", err)
	}
	if slices.ContainsFunc(l.entries, func(r storeRecord) bool { return r.Name == EndEntry }) {
		return errors.New("the recording had ended")
	}
	l.state = newest
	return nil
}

// cutLast cuts a name before the number at its end.
func cutLast(name string) (kind string, n uint64, ok bool) {
	at := strings.LastIndexByte(name, '.')
	n, err := strconv.ParseUint(name[at+1:], 10, 64)
	return name[:max(0, at)], n, err == nil
}

// start is what the recorder before has said of its start; zero: nothing.
func (l *left) start() (s Start, err error) {
	for _, r := range l.entries {
		if r.Name == StartEntry {
			err = json.Unmarshal(r.Data, &s)
		}
	}
	return s, err
}

// drop closes all, and has systemd forget it.
func (l *left) drop() {
	s, err := newStore()
	if err == nil {
		defer sys.CloseFD(s.conn) //nolint:errcheck // nothing depends on it
	}
	for name, fd := range l.fds {
		sys.Hang(fd) // systemd closes its own in its own time, and this process may want the address at once
		_ = sys.CloseFD(fd)
		if err == nil {
			_ = s.remove(name) // else it is dropped by the next start
		}
	}
	forgetListening()
}

func forgetListening() {
	for _, name := range listenVariables {
		_ = os.Unsetenv(name)
	}
}

// CheckStore looks at what systemd has kept of a process before this one. Where that cannot be
// read, or mayGoOn says why a recorder cannot go on with it, it is given up as if systemd had kept
// nothing.
func CheckStore(mayGoOn func(Start) error, log *slog.Logger) {
	l, err := leftInStore()
	if l == nil {
		return
	}
	var s Start
	if err == nil {
		s, err = l.start()
	}
	if err == nil {
		err = mayGoOn(s)
	}
	if err != nil {
		log.Warn("what systemd has kept open is closed, and the recording begins as behind a stop", "why", err)
		l.drop()
	}
}

// takeStore puts on the shelf what the process before has left, and keeps it there. ok: there is
// something.
func (k *keeper) takeStore() (ok bool) {
	defer forgetListening()
	l, err := leftInStore()
	if l == nil {
		return false
	}
	return k.takeLeft(l, err)
}

// takeLeft is takeStore of what was read; err says why it could not be.
func (k *keeper) takeLeft(l *left, err error) (ok bool) {
	s, storeErr := l.store()
	if err = errors.Join(err, storeErr); err != nil { // CheckStore has found none a moment ago
		k.Log.Error("what systemd has kept open cannot be taken: it is closed", "error", err)
		l.drop()
		return false
	}
	used := map[string]bool{l.state: true}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range l.entries {
		e, err := l.entry(r, used)
		if err != nil {
			k.Log.Error("systemd has not kept all of an entry: it is left out", "entry", r.Name, "error", err)
			err = s.write(storeRecord{Name: r.Name, Gone: true})
		}
		if err == nil {
			err = s.adopt(r.FDs, e.fds)
		}
		if err != nil {
			k.Log.Error("an entry cannot be kept any longer", "entry", r.Name, "error", err)
			continue
		}
		if e.name != "" {
			k.shelf = append(k.shelf, e)
		}
	}
	for name, fd := range l.fds {
		if !used[name] { // it was put when the keeper before had no time to write that down
			_ = sys.CloseFD(fd)
			_ = s.remove(name)
		}
	}
	k.store = s
	k.Log.Info("goes on with what systemd has kept open", "entries", len(k.shelf), "descriptors", len(s.held))
	k.sureOfStore()
	go k.watchStore(s)
	return true
}

// store is the store that there was, without what it holds.
func (l *left) store() (*store, error) {
	for _, fd := range l.fds { // else each child would have them all
		if err := sys.KeepOnExec([]int{fd}, false); err != nil {
			return nil, err
		}
	}
	s, err := newStore()
	if err != nil {
		return nil, err
	}
	for name := range l.fds {
		if _, n, ok := cutLast(name); ok {
			s.next = max(s.next, n)
		}
	}
	if l.state != "" {
		s.state, s.name, s.end = os.NewFile(uintptr(l.fds[l.state]), l.state), l.state, l.end
	}
	return s, nil
}

// entry is one of the shelf. A descriptor in the store may be of several entries: each has its own.
func (l *left) entry(r storeRecord, used map[string]bool) (e shelved, err error) {
	e = shelved{name: r.Name, data: r.Data}
	for _, name := range r.FDs {
		fd, ok := l.fds[name]
		if !ok {
			err = fmt.Errorf("descriptor %s is not there", name)
		} else if used[name] {
			fd, err = sys.Dup(fd)
		}
		if err != nil {
			Entry{FDs: e.fds}.CloseFDs()
			return shelved{}, err
		}
		used[name] = true
		e.fds = append(e.fds, fd)
	}
	return e, nil
}

// adopt takes descriptors for what they are called in the store already.
func (s *store) adopt(names []string, fds []int) error {
	for i, fd := range fds {
		file, err := sys.FileOf(fd)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(s.files[file], func(o *stored) bool { return o.name == names[i] })
		if at < 0 {
			at = len(s.files[file])
			s.files[file] = append(s.files[file], &stored{name: names[i], file: file})
		}
		o := s.files[file][at]
		o.fds = append(o.fds, fd)
		s.held[fd] = o
	}
	return nil
}

// handedStore is a store as a handover has it.
type handedStore struct {
	State int            `json:"state"`
	Name  string         `json:"name"`
	End   int64          `json:"end"`
	Next  uint64         `json:"next"`
	Names map[int]string `json:"names"` // by descriptor
}

// hand is the store for the program that the keeper executes; state is a descriptor that it keeps.
func (s *store) hand(state int) *handedStore {
	h := &handedStore{State: state, Name: s.name, End: s.end, Next: s.next, Names: map[int]string{}}
	for fd, o := range s.held {
		h.Names[fd] = o.name
	}
	return h
}

// takeHandedStore goes on with the store of the keeper before; nil: it had none. mu is held.
func (k *keeper) takeHandedStore(h *handedStore) {
	if h == nil {
		k.beginStore()
		return
	}
	s, err := newStore()
	if err != nil {
		k.Log.Error("the store of systemd cannot be gone on with", "error", err)
		_ = sys.CloseFD(h.State)
		return
	}
	s.state, s.name, s.end, s.next = os.NewFile(uintptr(h.State), h.Name), h.Name, h.End, h.Next
	for fd, name := range h.Names {
		err = errors.Join(err, s.adopt([]string{name}, []int{fd}))
	}
	k.store = s
	if err = errors.Join(err, s.remove(roomName)); err != nil { // the program before may have been at that
		k.giveUpStore(err)
		return
	}
	go k.watchStore(s)
}
