package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/ring"
)

// Relay passes on what one spool holds, the near one, to another, the far one, and by a file while
// that is full. So the producer of the near one and the consumer of the far one see a spool that
// holds as much as both and the file:
//
//	device → near spool → file → far spool → recorder
//
// The bytes of a mark go through the file, or by it where it is empty; their order stays.
//
// One process has the producer of the near spool and the Relay, and may be killed at any
// instruction. Marks are numbered, so its successor knows what is where:
//
//   - the far spool has all marks before its end;
//   - a checkpoint of the near spool says up to where marks left it, and which part of the file
//     holds those that the far spool does not have yet.
//
// A mark is passed on, or written to the file, before a checkpoint says so. What is found twice
// behind a kill has a number that is known, and is left out.
//
// One goroutine at a time may use a Relay; another may use the near spool's producer meanwhile.
type Relay struct {
	from *Consumer // of the near spool
	to   *Producer // of the far one
	file SpillFile // nil: it is not open
	cfg  RelayConfig

	state relayState
	data  [relayStateBytes]byte // for a checkpoint
	in    batch                 // is being passed on
	out   batch                 // is to be written, once something can be: the file holds what is before it
	size  int64                 // of the file
	// the last mark of the device that has left the near spool
	device Mark
	retry  time.Time // nothing is written before
	cause  uint32    // why the file takes no more; 0: it does

	ends    *atomic.Uint64 // see Relay.tell
	reserve atomic.Int64   // see RelayConfig
	step    func()         // between two steps that a successor can see; tests end a relay there
}

// RelayConfig is what a relay runs over into.
type RelayConfig struct {
	Max  int64                     // bytes of the file
	Open func() (SpillFile, error) // makes the file; a process that comes next has to find it
	File SpillFile                 // … as this one has; nil: there is none
	// Retry is the time between two tries to write. An error of those is told by Failed, nil when
	// all is well again; so is one that what was written cannot be read back, which is lost then.
	Retry  time.Duration
	Failed func(err error)
	// Reserve is how many bytes of the disk are to stay free, until [Relay.Reserve] says otherwise.
	Reserve int64
}

// SpillFile is a file that nobody else knows.
type SpillFile interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Room() (int64, error) // bytes that the disk may still give
	Close() error         // the room on the disk is given back; nobody has to find it any more
}

// errNoRoom says that the file has its size, or the disk would have less than it is to keep.
var errNoRoom = errors.New("there is no room for the file")

// relayState is in each checkpoint of the near spool.
type relayState struct {
	front, back uint64 // of what the file holds; it is a ring
	// By how many the marks and bytes of the far spool are fewer than those that have left the near
	// one: some are in the file, and of what was lost there the far one has a mark or two.
	marks, bytes uint64
	// The far spool has so many marks about what was lost behind mark lostAt: lost bytes, and how
	// the device was.
	owes, lostAt, lost uint64
	device             Mark // as it was when the last of the marks left the near spool; Kind 0: not known
}

const relayStateBytes = 7*8 + markBytes

func (s *relayState) put(b []byte) []byte {
	b = b[:0]
	for _, w := range [...]uint64{s.front, s.back, s.marks, s.bytes, s.owes, s.lostAt, s.lost} {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	b = b[:relayStateBytes]
	s.device.put(b[relayStateBytes-markBytes:])
	return b
}

// RelayRoom is the [Config.Room] of a near spool.
const RelayRoom = relayStateBytes

func relayStateOf(b []byte, most int64) (s relayState, err error) {
	if len(b) != relayStateBytes {
		return s, fmt.Errorf("spool: %d bytes of a relay: %w", len(b), ErrCorrupt)
	}
	for i, w := range [...]*uint64{&s.front, &s.back, &s.marks, &s.bytes, &s.owes, &s.lostAt, &s.lost} {
		*w = binary.NativeEndian.Uint64(b[8*i:])
	}
	s.device = markOf(b[relayStateBytes-markBytes:])
	if s.back < s.front || s.back-s.front > uint64(most) || s.back > 1<<62 || s.owes > 2 || s.device.read() ||
		s.device.Kind >= kinds {
		return s, fmt.Errorf("spool: a relay with %+v: %w", s, ErrCorrupt)
	}
	return s, nil
}

// NewRelay takes both spools' inner ends. What the relay before it, which has ended, was killed in
// is gone on with.
func NewRelay(near, far *Spool, cfg RelayConfig) (*Relay, error) {
	return newRelay(near, far, cfg, func() {})
}

func newRelay(near, far *Spool, cfg RelayConfig, step func()) (r *Relay, err error) {
	if near.Room() < RelayRoom {
		return nil, fmt.Errorf("spool: %d bytes in a checkpoint of a near spool: want %d", near.Room(), RelayRoom)
	}
	if cfg.Max < 1 {
		return nil, fmt.Errorf("spool: a file of %d bytes", cfg.Max)
	}
	r = &Relay{cfg: cfg, file: cfg.File, ends: ring.Uint64(far.owner, endAt), step: step}
	r.reserve.Store(cfg.Reserve)
	if r.from, err = near.consume(0, step); err != nil {
		return nil, err
	}
	if r.to, err = far.produce(min(far.Size(), maxBatchBytes), nil, step); err != nil {
		return nil, err
	}
	if err := r.begin(near, far); err != nil {
		return nil, err
	}
	r.device = r.state.device
	if r.file == nil {
		return r, nil
	}
	if r.state.front == r.state.back { // it was killed before it closed that
		r.close()
		return r, nil
	}
	if r.size, err = r.file.Size(); err != nil {
		r.lose(err)
	}
	return r, nil
}

// ErrOther says that a near spool is that of another far one.
var ErrOther = errors.New("the spool is before another one")

// begin takes up what the checkpoint says. A near spool that is new goes on behind what the far one
// has, and is bound to it.
func (r *Relay) begin(near, far *Spool) (err error) {
	switch ID(near.owner[farAt:]) {
	case far.id:
		cp, ok := r.from.Restored()
		if !ok {
			return fmt.Errorf("spool: no checkpoint of a relay: %w", ErrCorrupt)
		}
		r.state, err = relayStateOf(cp.Data, r.cfg.Max)
		return err
	case ID{}:
		r.state.marks, r.state.bytes = -r.to.published, -r.to.Position()
		if err := r.save(r.from.Point()); err != nil {
			return err
		}
		copy(near.owner[farAt:], far.id[:])
		r.step()
		return nil
	}
	return ErrOther
}

// batch is marks that have left the near spool together, and their bytes. Its form in the file:
//
//	length u32 │ marks u32 │ first u64 │ offset u64 │ CRC-32C u32 of all else │ 0 u32
//	marks of 32 bytes each
//	bytes
//
// first is the number of the first mark, offset that of the first byte, both in the near spool.
type batch struct {
	buf     []byte
	next    int // marks that were passed on
	at      int // … and bytes
	spilled bool
	end     Point // of the near spool, behind it; not of one that was read back
	device  Mark
}

const (
	batchHeader   = 32
	batchMarks    = 4 << 10
	maxBatchBytes = 256 << 10 // that a batch takes a next mark behind
	// a mark has as many bytes as a spool holds, at most
	maxBatch = batchHeader + batchMarks*markBytes + maxBatchBytes + ring.MaxSize
)

func (b *batch) isEmpty() bool   { return len(b.buf) == 0 }
func (b *batch) marks() int      { return int(binary.NativeEndian.Uint32(b.buf[4:])) }
func (b *batch) first() uint64   { return binary.NativeEndian.Uint64(b.buf[8:]) }
func (b *batch) offset() uint64  { return binary.NativeEndian.Uint64(b.buf[16:]) }
func (b *batch) mark(i int) Mark { return markOf(b.buf[batchHeader+i*markBytes:]) }
func (b *batch) bytes() []byte   { return b.buf[batchHeader+b.marks()*markBytes:] }
func (b *batch) reset()          { *b = batch{buf: b.buf[:0]} }

func (b *batch) sum() uint32 {
	head := [batchHeader]byte(b.buf)
	clear(head[24:28])
	return sumOf(head[:], b.buf[batchHeader:])
}

// collect takes what waits in the near spool, up to a bound. ok is false where nothing does.
func (r *Relay) collect(b *batch) (ok bool, err error) {
	start := r.from.Point()
	b.buf = append(b.buf[:0], make([]byte, batchHeader)...)
	n := 0
	for ; n < batchMarks && r.from.Point().Shown-start.Shown < maxBatchBytes; n++ {
		m, _, ok, err := r.from.Next()
		if err != nil {
			b.reset()
			return false, err
		}
		if !ok {
			break
		}
		if m.Kind == Opened || m.Kind == Closed || m.Kind == Absent || m.Kind == Ended {
			r.device = m
		}
		b.buf = append(b.buf, make([]byte, markBytes)...)
		m.put(b.buf[len(b.buf)-markBytes:])
	}
	r.from.Close()
	if n == 0 {
		b.reset()
		return false, nil
	}
	view, err := r.from.Held()
	if err != nil {
		b.reset()
		return false, err
	}
	b.buf = append(b.buf, view...)
	r.from.Done(len(view))
	binary.NativeEndian.PutUint32(b.buf, uint32(len(b.buf)))
	binary.NativeEndian.PutUint32(b.buf[4:], uint32(n))
	binary.NativeEndian.PutUint64(b.buf[8:], start.Marks)
	binary.NativeEndian.PutUint64(b.buf[16:], start.Shown)
	b.end, b.device = r.from.Point(), r.device
	return true, nil
}

// Move passes on what waits in the near spool, unless the file has something that comes first, or
// the far spool is full: then [Relay.Step] has to go on. It calls nothing of the file.
func (r *Relay) Move() error {
	defer r.tell()
	return r.forward(false)
}

// IsThrough reports whether all was passed on that waited in the near spool.
func (r *Relay) IsThrough() bool {
	return r.in.isEmpty() && r.out.isEmpty() && r.state.front == r.state.back && r.isPaid() && r.from.IsAtEnd()
}

// Step passes on what there is room for, also from the file, and writes to that what would soon
// have no room in the near spool. It takes as long as the file does. more: there may be more to do
// at once; else there is when the far spool has room, or the near one has more.
func (r *Relay) Step() (more bool, err error) {
	before := r.to.published
	if err := r.forward(true); err != nil {
		return false, err
	}
	more = r.to.published != before
	if r.isHeavy() && !time.Now().Before(r.retry) {
		wrote, err := r.spill()
		if err != nil {
			return false, err
		}
		more = more || wrote
	}
	r.tell()
	return more, nil
}

// Cause is why the file takes no more, a cause of [Unattended]; 0: it does.
func (r *Relay) Cause() uint32 { return r.cause }

// Reserve changes how many bytes of the disk are to stay free. Any goroutine may call it.
func (r *Relay) Reserve(n int64) { r.reserve.Store(n) }

// Close gives back the file to whoever comes next, as it is, and tells the far end how much waits.
func (r *Relay) Close() {
	r.tell()
	r.from.Close()
}

// forward passes on what comes next while there is room for it.
func (r *Relay) forward(mayRead bool) error {
	for {
		if paid, err := r.pay(); err != nil || !paid {
			return err
		}
		if r.in.isEmpty() {
			ok, err := r.fetch(mayRead)
			if err != nil || !ok {
				return err
			}
			if r.in.isEmpty() { // what was to be read is lost
				continue
			}
		}
		err := r.pass()
		switch {
		case errors.Is(err, ErrFull):
			return nil
		case errors.Is(err, errDamaged):
			r.lose(err)
			continue
		case err != nil:
			return err
		}
		if err := r.passed(); err != nil {
			return err
		}
	}
}

// fetch brings the next batch. ok is false where there is none, or it would have to be read.
func (r *Relay) fetch(mayRead bool) (ok bool, err error) {
	switch {
	case r.state.front != r.state.back:
		if !mayRead {
			return false, nil
		}
		if err := r.read(); err != nil {
			r.lose(err)
		}
		return true, nil
	case !r.out.isEmpty():
		r.in, r.out = r.out, r.in
		return true, nil
	}
	return r.collect(&r.in)
}

// errDamaged says that the file does not have what was written.
var errDamaged = errors.New("it is not what was written")

// pass passes on the batch, from the first mark that the far spool does not have.
func (r *Relay) pass() error {
	b := &r.in
	wrong := ErrCorrupt
	if b.spilled {
		wrong = errDamaged
	}
	at, all := b.offset()+uint64(b.at), b.bytes()
	for ; b.next < b.marks(); b.next++ {
		m := b.mark(b.next)
		n := int(m.At - at)
		if !m.follows(at) || n > len(all)-b.at {
			return fmt.Errorf("spool: mark %+v, behind offset %d of a batch: %w", m, at, wrong)
		}
		due := r.to.published + r.state.marks
		switch number := b.first() + uint64(b.next); {
		case number > due:
			return fmt.Errorf("spool: mark %d comes behind %d: %w", number, due, wrong)
		case number == due:
			if err := r.to.pass(m, all[b.at:b.at+n]); err != nil {
				return err
			}
		}
		at, b.at = m.At, b.at+n
	}
	return nil
}

// passed notes that the far spool has all of the batch.
func (r *Relay) passed() error {
	b := &r.in
	end := b.end
	if b.spilled {
		end = r.from.kept
		r.state.front += uint64(len(b.buf))
		if r.state.front == r.state.back {
			r.state.front, r.state.back = 0, 0
		}
	} else {
		r.state.device = b.device
	}
	wasSpilled := b.spilled
	b.reset()
	if err := r.save(end); err != nil {
		return err
	}
	if wasSpilled && r.state.back == 0 {
		r.close()
	}
	return nil
}

// save keeps how far all is: what lies before in the near spool is given back. It is the checkpoint
// before that frees memory, so where there is little it is kept twice.
func (r *Relay) save(at Point) error {
	cp := Checkpoint{Point: at, Data: r.state.put(r.data[:])}
	if err := r.from.Save(cp); err != nil || !r.isHeavy() {
		return err
	}
	return r.from.Save(cp)
}

// isHeavy reports whether the near spool should be emptied by the file, where the far one is full.
func (r *Relay) isHeavy() bool {
	_ = r.from.IsAtEnd() // it looks what there is
	s := r.from.spool
	return r.from.published-r.from.released >= s.slots/4 ||
		r.from.Unshown()+r.from.at.Shown-r.from.ring.Position() >= uint64(s.Size())/4
}

// spill writes the next batch to the file. wrote is false where there is none, or it has to wait.
func (r *Relay) spill() (wrote bool, err error) {
	b := &r.out
	switch {
	case !r.in.isEmpty() && !r.in.spilled: // the file is empty, and the far spool full
		b = &r.in
	case b.isEmpty():
		if ok, err := r.collect(b); err != nil || !ok {
			return false, err
		}
	}
	binary.NativeEndian.PutUint32(b.buf[24:], b.sum())
	if err := r.write(b.buf); err != nil {
		r.cause = SpillFailed
		if errors.Is(err, errNoRoom) {
			r.cause = SpillFull
		}
		r.retry = time.Now().Add(r.cfg.Retry)
		r.cfg.Failed(err)
		return false, nil
	}
	if r.cause != 0 {
		r.cause = 0
		r.cfg.Failed(nil)
	}
	r.step()
	r.state.back += uint64(len(b.buf))
	r.state.device = b.device
	end := b.end
	b.reset()
	return true, r.save(end)
}

// write writes to the file behind what it holds.
func (r *Relay) write(b []byte) error {
	if r.state.back-r.state.front+uint64(len(b)) > uint64(r.cfg.Max) {
		return fmt.Errorf("%w: it has its size", errNoRoom)
	}
	if r.file == nil {
		f, err := r.cfg.Open()
		if err != nil {
			return err
		}
		r.file, r.size = f, 0
	}
	at := int64(r.state.back % uint64(r.cfg.Max))
	end := min(at+int64(len(b)), r.cfg.Max)
	if grows := end - r.size; grows > 0 {
		reserve := r.reserve.Load()
		if room, err := r.file.Room(); err == nil && room < grows+reserve {
			return fmt.Errorf("%w: %d bytes are free, and %d are to stay so", errNoRoom, room, reserve)
		}
	}
	n := end - at
	_, err := r.file.WriteAt(b[:n], at)
	r.step()
	if err == nil && n < int64(len(b)) {
		_, err = r.file.WriteAt(b[n:], 0)
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", errNoRoom, err)
	case err == nil:
		r.size = max(r.size, end)
	}
	return err
}

// read brings the oldest batch of the file.
func (r *Relay) read() error {
	if r.file == nil {
		return errors.New("the file is gone")
	}
	b, held := &r.in, r.state.back-r.state.front
	b.reset()
	if held < batchHeader {
		return errDamaged
	}
	b.buf = append(b.buf, make([]byte, batchHeader)...)
	if err := r.readAt(b.buf, r.state.front); err != nil {
		return err
	}
	n, marks := uint64(binary.NativeEndian.Uint32(b.buf)), uint64(b.marks())
	if n > held || n > maxBatch || marks > batchMarks || n < batchHeader+marks*markBytes || marks == 0 {
		return errDamaged
	}
	b.buf = append(b.buf, make([]byte, n-batchHeader)...)
	if err := r.readAt(b.buf[batchHeader:], r.state.front+batchHeader); err != nil {
		return err
	}
	if b.sum() != binary.NativeEndian.Uint32(b.buf[24:]) {
		return errDamaged
	}
	b.spilled = true
	return nil
}

func (r *Relay) readAt(b []byte, position uint64) error {
	at := int64(position % uint64(r.cfg.Max))
	n := min(int64(len(b)), r.cfg.Max-at)
	_, err := r.file.ReadAt(b[:n], at)
	if err == nil && n < int64(len(b)) {
		_, err = r.file.ReadAt(b[n:], 0)
	}
	return err
}

// lose gives up what the file holds, which cannot be read. The far spool gets marks of it.
func (r *Relay) lose(why error) {
	r.cfg.Failed(fmt.Errorf("what had run over cannot be read back: %w", why))
	s := &r.state
	s.front, s.back = 0, 0
	r.in.reset()
	s.owes = 1
	if s.device.Kind != 0 {
		s.owes = 2
	}
	kept, at := r.from.kept, r.to.Position()
	s.lostAt, s.lost = r.to.published, kept.Shown-(at+s.bytes)
	s.marks, s.bytes = kept.Marks-(s.lostAt+s.owes), kept.Shown-at
	if err := r.save(kept); err == nil { // the near spool has room for it
		r.close()
	}
}

func (r *Relay) isPaid() bool { return r.to.published-r.state.lostAt >= r.state.owes }

// pay writes the marks of what was lost.
func (r *Relay) pay() (paid bool, err error) {
	for s := &r.state; !r.isPaid(); {
		m := Mark{Time: s.device.Time, Kind: Lost, A: Spilled, B: s.lost}
		if r.to.published != s.lostAt {
			m = s.device
		}
		m.At = r.to.Position()
		if err := r.to.pass(m, nil); err != nil {
			if errors.Is(err, ErrFull) {
				err = nil
			}
			return false, err
		}
	}
	return true, nil
}

func (r *Relay) close() {
	if r.file == nil {
		return
	}
	if err := r.file.Close(); err != nil {
		r.cfg.Failed(err)
	}
	r.file, r.size = nil, 0
	for _, b := range []*batch{&r.in, &r.out} { // what waits to be written is passed on instead
		if b.isEmpty() {
			b.buf = nil
		}
	}
}

// tell tells the far end where what waits here will end in it: what is passed on meanwhile waits
// here no more, without another word.
func (r *Relay) tell() {
	end := r.from.at.Shown + r.from.Unshown() - r.state.bytes
	if r.ends.Load() != end {
		r.ends.Store(end)
	}
}
