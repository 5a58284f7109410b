package isolate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// systemd keeps descriptors for a service, and hands them to its next process, whether that comes
// behind a restart or a kill (sd_pid_notify_with_fds(3), FDSTORE=1). The keeper stores each one of
// the shelf there, so that the shelf outlives the keeper, too.
//
// What the entries are is in a file of memory, which is stored as well:
//
//	length u32 · CRC-32C u32 · record    the first: a snapshotHead; then so many entries; then changes
//	…                                    a record that the file does not have as a whole was never written
//
// Each change takes three steps, so that the keeper may be killed between any two of them: new
// descriptors are stored; the record is written; those that no entry has any more are removed. The
// next keeper drops what is stored and in no record. Where the file is full, another that begins
// with a snapshot is stored, and then the old one is removed: the higher number counts.

// storeForm is that of the records: a keeper drops what one with another form has left.
const storeForm = 1

// Names in the store. They must be without ':', so those of entries will not do.
const (
	storeNames = "tallywheel."        // what all begin with
	stateNames = storeNames + "shelf" // … of the files of records, with a number
	roomName   = storeNames + "room"  // … of what is stored to see whether there is room
)

const (
	stateBytes  = 64 << 20 // of the file of records: only what is written takes memory
	stateHead   = 8        // length and CRC
	refusedSoon = 250 * time.Millisecond
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errNoRoom  = errors.New("it takes no more descriptors: raise FileDescriptorStoreMax= in the unit")
)

// snapshotHead is the first record of a file.
type snapshotHead struct {
	Form    int
	Entries int
}

// storeRecord is an entry that was put, or that is gone.
type storeRecord struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data,omitempty"`
	FDs  []string        `json:"fds,omitempty"` // their names in the store
	Gone bool            `json:"gone,omitempty"`
}

// store is the keeper's side of it; nil: there is none. The keeper's mu guards it.
type store struct {
	conn int // to the socket of sd_notify(3)

	next   uint64                   // number of the next name
	held   map[int]*stored          // by the keeper's descriptor
	files  map[sys.FileID][]*stored // more than one: opened more than once
	state  *os.File
	name   string    // … of it
	end    int64     // … where the next record goes
	unsure []*stored // stored since it was seen last that there is room
}

// stored is an open file in the store. systemd takes none twice: it keeps the first name.
type stored struct {
	name string
	file sys.FileID
	fds  []int // of the keeper, on the shelf
}

var errNoSupervisor = errors.New("no supervisor has started this process (NOTIFY_SOCKET)")

// newStore is an empty store. errNoSupervisor: nobody is there who might have one.
func newStore() (*store, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, errNoSupervisor
	}
	conn, err := sys.DialDatagrams(path, sendWithin)
	if err != nil {
		return nil, fmt.Errorf("the supervisor: %w", err)
	}
	return &store{conn: conn, held: map[int]*stored{}, files: map[sys.FileID][]*stored{}}, nil
}

// tell sends systemd a message, with descriptors.
func (s *store) tell(state string, fds ...int) error {
	return sys.SendDatagram(s.conn, []byte(state), fds...)
}

func (s *store) remove(name string) error { return s.tell("FDSTOREREMOVE=1\nFDNAME=" + name) }

// keep stores a descriptor. systemd would else drop one that has hung up, with what is to be read
// from it (FDPOLL, systemd 246).
func (s *store) keep(name string, fd int) error {
	return s.tell("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, fd)
}

func (s *store) newName() string {
	s.next++
	return storeNames + strconv.FormatUint(s.next, 10)
}

// hold stores descriptors that are about to be on the shelf, and names them.
func (s *store) hold(fds []int) (names []string, err error) {
	for _, fd := range fds {
		file, err := sys.FileOf(fd)
		if err != nil {
			return names, err
		}
		at := slices.IndexFunc(s.files[file], func(o *stored) bool { return sys.SameOpen(fd, o.fds[0]) })
		if at < 0 {
			o := &stored{name: s.newName(), file: file}
			if err := s.keep(o.name, fd); err != nil {
				return names, err
			}
			s.files[file] = append(s.files[file], o)
			s.unsure = append(s.unsure, o)
			at = len(s.files[file]) - 1
		}
		o := s.files[file][at]
		o.fds = append(o.fds, fd)
		s.held[fd] = o
		names = append(names, o.name)
	}
	return names, nil
}

// release removes descriptors that are about to be closed, unless the shelf has another one of the
// same open file.
func (s *store) release(fds []int) (err error) {
	for _, fd := range fds {
		o := s.held[fd]
		if o == nil {
			continue
		}
		delete(s.held, fd)
		if o.fds = slices.DeleteFunc(o.fds, func(n int) bool { return n == fd }); len(o.fds) > 0 {
			continue
		}
		same := slices.DeleteFunc(s.files[o.file], func(p *stored) bool { return p == o })
		if s.files[o.file] = same; len(same) == 0 {
			delete(s.files, o.file)
		}
		s.unsure = slices.DeleteFunc(s.unsure, func(p *stored) bool { return p == o })
		err = errors.Join(err, s.remove(o.name))
	}
	return err
}

// place stores a change of the shelf. before is the descriptors of the entry that goes.
func (s *store) place(m message, fds, before []int, all func() []shelved) error {
	names, err := s.hold(fds)
	if err != nil {
		return err
	}
	err = s.write(storeRecord{Name: m.Name, Data: m.Data, FDs: names, Gone: m.Op == opDrop})
	if errors.Is(err, io.ErrShortWrite) {
		err = s.snapshot(all())
	}
	return errors.Join(err, s.release(before))
}

// write appends a record. io.ErrShortWrite: the file is full.
func (s *store) write(r any) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	b := make([]byte, stateHead, stateHead+len(text))
	binary.NativeEndian.PutUint32(b, uint32(len(text)))
	binary.NativeEndian.PutUint32(b[4:], crc32.Checksum(text, castagnoli))
	b = append(b, text...)
	if s.end+int64(len(b)) > stateBytes {
		return io.ErrShortWrite
	}
	if _, err := s.state.WriteAt(b, s.end); err != nil {
		return err
	}
	s.end += int64(len(b))
	return nil
}

// snapshot begins a new file of records, in the place of the one that there is.
func (s *store) snapshot(shelf []shelved) error {
	fd, err := sys.SealedMemory("tallywheel-shelf", stateBytes)
	if err != nil {
		return err
	}
	old, oldName := s.state, s.name
	s.next++
	s.state, s.name, s.end = os.NewFile(uintptr(fd), "shelf"), stateNames+"."+strconv.FormatUint(s.next, 10), 0
	shelf = slices.DeleteFunc(slices.Clone(shelf), func(e shelved) bool { return e.name == StoreEntry })
	err = s.write(snapshotHead{storeForm, len(shelf)})
	for _, e := range shelf {
		r := storeRecord{Name: e.name, Data: e.data}
		for _, fd := range e.fds {
			r.FDs = append(r.FDs, s.held[fd].name)
		}
		err = errors.Join(err, s.write(r))
	}
	if err == nil {
		err = s.keep(s.name, fd)
	}
	if old != nil {
		err = errors.Join(err, old.Close())
		err = errors.Join(err, s.remove(oldName))
	}
	return err
}

// clear takes all out of the store. Where systemd does not hear of it, no keeper can read what is
// there.
func (s *store) clear() {
	if s.state != nil {
		_, _ = s.state.WriteAt(make([]byte, stateHead), 0) // it has memory there
	}
	names := []string{s.name, roomName}
	for _, o := range s.held {
		names = append(names, o.name)
	}
	for _, name := range names {
		if name != "" && s.remove(name) != nil {
			break // nobody listens
		}
	}
	if s.state != nil {
		_ = s.state.Close()
	}
	// The socket stays open: watchStore may be about to send.
}

// hasRoom sees whether the store takes one more descriptor: that of a pipe, for one that is refused
// is closed. It takes no lock.
func (s *store) hasRoom() (bool, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	err = s.keep(roomName, int(w.Fd()))
	_ = w.Close()
	if err == nil {
		err = s.await()
	}
	if err != nil {
		return false, err
	}
	refused := sys.HangsUp(int(r.Fd()), refusedSoon) // a thread of systemd's closes it, in its own time
	return !refused, s.remove(roomName)
}

// await returns once systemd has taken all that it was told (BARRIER, systemd 246).
func (s *store) await() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = s.tell("BARRIER=1", int(w.Fd()))
	_ = w.Close()
	if err != nil {
		return err
	}
	_ = r.SetReadDeadline(time.Now().Add(sendWithin))
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("systemd does not answer: %w", err)
	}
	return nil
}

// beginStore looks whether systemd keeps descriptors, on a goroutine of its own, and has it keep
// the shelf from then on.
func (k *keeper) beginStore() {
	s, err := newStore()
	if err != nil {
		if !errors.Is(err, errNoSupervisor) {
			k.Log.Info("ports and connections close when this process ends", "error", err)
		}
		return
	}
	go func() {
		room, err := s.hasRoom()
		if !room {
			k.Log.Info("the supervisor keeps no descriptors: ports and connections close when this process ends; "+
				"FileDescriptorStoreMax= in a unit of systemd changes that", "error", err)
			_ = sys.CloseFD(s.conn)
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.stopping {
			_ = sys.CloseFD(s.conn)
			return
		}
		k.store = s
		for _, e := range k.shelf {
			if _, err = s.hold(e.fds); err != nil {
				break
			}
		}
		if err == nil {
			err = s.snapshot(k.shelf)
		}
		if err != nil {
			k.giveUpStore(err)
			return
		}
		k.Log.Info("systemd keeps what is open, should this process end", "descriptors", len(s.held))
		k.sureOfStore()
		k.looksForRoom()
		go k.watchStore(s)
	}()
}

// sureOfStore tells both children that what the shelf has outlives the keeper. mu is held.
func (k *keeper) sureOfStore() {
	m := message{Op: opPut, Name: StoreEntry, Data: json.RawMessage("true")}
	k.place(m, nil)
	k.tellAll(m)
}

// tellAll sends a message to both children. One that does not listen shows by others. mu is held.
func (k *keeper) tellAll(m message) {
	for _, c := range k.children {
		if c.conn != nil {
			_ = send(c.conn, m, nil)
		}
	}
}

// watchStore sees, behind each change, whether the store had room for it.
func (k *keeper) watchStore(s *store) {
	for range k.changed {
		for again := true; again; {
			k.mu.Lock()
			s.unsure = nil
			k.mu.Unlock()
			room, err := s.hasRoom()
			k.mu.Lock()
			again = k.store == s && len(s.unsure) > 0
			switch {
			case k.store != s: // it was given up, or another program goes on with it
			case err != nil:
				k.Log.Debug("whether the store of systemd has room is not known", "error", err)
			case !room:
				k.giveUpStore(errNoRoom)
			default: // what came meanwhile may have met a store that the pipe had filled
				for _, o := range s.unsure {
					if err := s.keep(o.name, o.fds[0]); err != nil {
						k.giveUpStore(err)
						break
					}
				}
			}
			over := k.store != s
			k.mu.Unlock()
			if over {
				return
			}
		}
	}
}

// keepInStore is place for the store. mu is held.
func (k *keeper) keepInStore(m message, fds, before []int) {
	if k.store == nil || m.Name == StoreEntry {
		return
	}
	all := func() []shelved { return placed(slices.Clone(k.shelf), m, fds) }
	if err := k.store.place(m, fds, before, all); err != nil {
		k.giveUpStore(err)
		return
	}
	k.looksForRoom()
}

// looksForRoom has watchStore look, if something was stored since it did. mu is held.
func (k *keeper) looksForRoom() {
	if len(k.store.unsure) > 0 {
		select {
		case k.changed <- struct{}{}:
		default: // it will look
		}
	}
}

// giveUpStore goes on without the store, as where there is none. mu is held.
func (k *keeper) giveUpStore(why error) {
	s := k.store
	if k.store = nil; s == nil {
		return
	}
	n := len(s.held)
	s.clear()
	k.Log.Error("the store of systemd is given up: should this process end, ports and connections close", "error", why,
		"descriptors", n)
	m := message{Op: opDrop, Name: StoreEntry}
	k.place(m, nil)
	k.tellAll(m)
}

// leaveOff has the processes end so that the next start goes on where they were: first the reader,
// once what it lags behind is read, and then the recorder, which records all that the reader
// has written: systemd may have been told to stop the service, and keeps nothing then. mu is held.
func (k *keeper) leaveOff() {
	r, c := k.children[Reader], k.children[Recorder]
	switch {
	case r.PID == 0: // it has ended
		if c.PID != 0 && c.ready && !c.leaves && c.conn != nil {
			c.leaves = true
			m := message{Op: opLeave}
			m.Data, _ = json.Marshal(k.left()) // of an error the recorder hears nothing but that it is to leave
			_ = send(c.conn, m, nil)           // one that does not listen is at its end
		}
	case !r.leaves && r.conn != nil:
		r.leaves, k.leaving = true, time.Now()
		_ = send(r.conn, message{Op: opLeave}, nil)
		time.AfterFunc(catchesUpIn+readerEnds, func() { _ = r.process.Kill() })
	}
}

// left is what the reader has left. mu is held.
func (k *keeper) left() (l Left) {
	if !k.leaving.IsZero() {
		l.Waited = time.Since(k.leaving)
	}
	for _, e := range k.shelf {
		kind, source := SourceOf(e.name)
		if kind != "lane" {
			continue
		}
		var lane Lane
		if json.Unmarshal(e.data, &lane) != nil || lane.Kind == Serial || lane.Kind == Datagrams {
			continue
		}
		n := uint64(0)
		for _, fd := range k.devices(source) {
			n += sockets.Waiting(fd)
		}
		if n > 0 && len(l.Unread) < maxLeft {
			if l.Unread == nil {
				l.Unread = map[string]uint64{}
			}
			l.Unread[source] = n
		}
	}
	return l
}

// maxLeft bounds a message: a source has a name of 64 bytes at most.
const maxLeft = 1000

// readerLeft goes on with leaveOff once the reader has ended. ok is false where the keeper does not
// leave.
func (k *keeper) readerLeft(c *child) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.leaves {
		return false
	}
	if _, crashed, what := c.outcome(); crashed {
		k.Log.Error("the reader did not end in order", "state", what)
	}
	k.leaveOff()
	return true
}

func (k *keeper) isLeaving() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leaves
}

// closeStore leaves the store to the next process, unless the recording has ended. mu is held.
func (k *keeper) closeStore() {
	s := k.store
	if k.store = nil; s == nil {
		return
	}
	if k.entry(EndEntry).name != "" {
		s.clear()
	}
}

// records reads a file of records: the entries in their order. An error is one of the snapshot: a
// change that is not whole was never made.
func records(f io.ReaderAt, size int64) (all []storeRecord, end int64, err error) {
	next := func(into any) error {
		var head [stateHead]byte
		if _, err := f.ReadAt(head[:], end); err != nil {
			return err
		}
		n := int64(binary.NativeEndian.Uint32(head[:]))
		if n == 0 || end+stateHead+n > size {
			return io.ErrUnexpectedEOF
		}
		text := make([]byte, n)
		if _, err := f.ReadAt(text, end+stateHead); err != nil {
			return err
		}
		if crc32.Checksum(text, castagnoli) != binary.NativeEndian.Uint32(head[4:]) {
			return io.ErrUnexpectedEOF
		}
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(into); err != nil {
			return err
		}
		end += stateHead + n
		return nil
	}
	var first snapshotHead
	if err := next(&first); err != nil {
		return nil, end, err
	}
	if first.Form != storeForm {
		return nil, end, fmt.Errorf("it is of form %d, and this program takes form %d", first.Form, storeForm)
	}
	for n := 0; ; n++ {
		var r storeRecord
		if err := next(&r); err != nil {
			if n < first.Entries {
				return nil, end, err
			}
			return all, end, nil
		}
		at := slices.IndexFunc(all, func(o storeRecord) bool { return o.Name == r.Name })
		switch {
		case r.Gone && at >= 0:
			all = slices.Delete(all, at, at+1)
		case r.Gone:
		case at >= 0:
			all[at] = r
		default:
			all = append(all, r)
		}
	}
}
