package isolate

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// runover is between the spool that a line fills, the near one, and the one that is recorded, with
// a file for what has no room there. Both and the file are on the shelf.
//
// Whoever has written into the near spool has it move on, in memory. From the first bytes that have
// no room, to the last that are back from the file, a goroutine does that, which is in calls of the
// file: nobody waits for those. A nil runover is none.
type runover struct {
	line   *line // nothing is called before it is there
	spill  Spill
	near   *spool.Spool
	file   *os.File      // nil: there is none
	known  bool          // the near spool is on the shelf
	woken  chan struct{} // has a signal when there is more to be moved
	why    atomic.Uint32 // see cause
	broken atomic.Bool   // the spools make no sense
	told   time.Time     // when the journal was told of what fails last; zero: nothing does

	mu    sync.Mutex   // held for moves in memory
	relay *spool.Relay // the goroutine's while that is there, else under mu
	idle  chan struct{}
	going bool // the goroutine is there, and closes idle
	ended bool // nothing is moved any more
}

// newRunover goes on with the spool and the file that the reader before has left before far, if
// there are some.
func newRunover(source string, spill Spill, far *spool.Spool, left []int) (o *runover, err error) {
	o = &runover{spill: spill, woken: make(chan struct{}, 1)}
	cfg := spool.RelayConfig{
		Max: spill.Max, Reserve: spill.Reserve, Open: o.open, Retry: time.Second, Failed: o.failed,
	}
	if len(left) > 1 {
		o.file = os.NewFile(uintptr(left[1]), "spill of "+source)
		cfg.File = o
	}
	if len(left) > 0 {
		f := os.NewFile(uintptr(left[0]), "near spool of "+source)
		if o.near, err = spool.Open(f); err != nil {
			return nil, errors.Join(err, f.Close(), o.closeFile())
		}
		o.known = true
		o.relay, err = spool.NewRelay(o.near, far, cfg)
		if err == nil {
			return o, nil
		}
		if !errors.Is(err, spool.ErrOther) {
			return nil, errors.Join(err, o.near.Close(), o.closeFile())
		}
		// of a line that had ended when it was put there
		_ = errors.Join(o.near.Close(), o.closeFile())
		o.known, cfg.File = false, nil
	}
	o.near, err = spool.Create(spool.Config{Size: far.Size(), Marks: far.Marks(), Room: spool.RelayRoom})
	if err != nil {
		return nil, err
	}
	if o.relay, err = spool.NewRelay(o.near, far, cfg); err != nil {
		return nil, errors.Join(err, o.near.Close())
	}
	return o, nil
}

// begin puts the near spool on the shelf, before anything is in it. The one of a line before has
// ended.
func (o *runover) begin() {
	if o == nil {
		return
	}
	if !o.known {
		o.put()
	}
	o.move()
}

// put puts on the shelf what there is.
func (o *runover) put() {
	if o.line.isDropped() {
		return // the recorder has taken it off
	}
	raw, err := o.near.File().SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		fds := []int{int(fd)}
		if o.file != nil {
			fds = append(fds, int(o.file.Fd()))
		}
		err = o.line.link.Put(SpillOf(o.line.source), nil, fds...)
	})
	if err != nil {
		o.line.log.Warn("the keeper has ended", "error", err)
	}
	o.known = true
}

// move moves on what is in the near spool. Any goroutine may call it.
func (o *runover) move() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended:
	case o.going:
		o.signal()
	default:
		if !o.check(o.relay.Move()) || o.relay.IsThrough() {
			return
		}
		o.going, o.idle = true, make(chan struct{})
		go o.run(o.idle)
	}
}

// check ends all after an error.
func (o *runover) check(err error) (ok bool) {
	if err == nil {
		return true
	}
	o.ended = true
	o.broken.Store(true)
	o.line.say(Port{Why: err.Error(), Refused: true})
	o.line.log.Error("the memory of a source that runs over makes no sense: it cannot be read until the recorder is started anew", "error", err)
	return false
}

// run moves on what there is until nothing waits, or the line ends.
func (o *runover) run(idle chan struct{}) {
	defer close(idle)
	look := time.NewTicker(fullLook)
	defer look.Stop()
	for {
		more, err := o.relay.Step()
		o.why.Store(o.relay.Cause())
		if more {
			o.line.bell.Tell()
		}
		o.mu.Lock()
		if !o.check(err) || o.ended || o.relay.IsThrough() {
			o.going = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		if more {
			continue
		}
		select {
		case <-o.woken:
		case <-look.C: // the far spool wakes nobody when it has room
		}
	}
}

func (o *runover) signal() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// cause is why there is no room, as spool.Unattended says it; 0: the file is not the reason.
func (o *runover) cause() uint32 {
	if o == nil {
		return 0
	}
	return o.why.Load()
}

// isBroken reports whether nothing is moved any more, for the spools make no sense.
func (o *runover) isBroken() bool { return o != nil && o.broken.Load() }

// change takes up what may change while the line goes on: what is to stay free of the disk.
func (o *runover) change(s *Spill) {
	if o != nil && s != nil {
		o.relay.Reserve(s.Reserve)
	}
}

// holds reports whether something that the line has read waits here.
func (o *runover) holds() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.ended && (o.going || !o.relay.IsThrough())
}

// await returns when all that the line has read is where it is recorded from, or nobody wants it
// there any more. Where the keeper has ended it waits as long as the line may.
func (o *runover) await() {
	if o == nil {
		return
	}
	look := time.NewTicker(fullLook)
	defer look.Stop()
	for {
		over := !o.holds()
		l := o.line
		l.mu.Lock()
		over = over || l.dropped || l.isLeft() || l.orphaned && time.Now().After(l.giveUp)
		l.mu.Unlock()
		if over {
			return
		}
		<-look.C
	}
}

// close has nothing moved any more. What is on the shelf stays there.
func (o *runover) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.ended = true
	idle, going := o.idle, o.going
	o.mu.Unlock()
	if going {
		o.signal()
		<-idle
	}
	o.relay.Close()
	_ = errors.Join(o.closeFile(), o.near.Close())
}

// open makes the file. It has no name, so that it goes with the last who holds it.
func (o *runover) open() (spool.SpillFile, error) {
	f, err := sys.NamelessFile(o.spill.Dir, "tallywheel-spill-*")
	if err != nil {
		return nil, err
	}
	o.file = f
	o.put()
	return o, nil
}

func (o *runover) closeFile() error {
	f := o.file
	if o.file = nil; f == nil {
		return nil
	}
	return f.Close()
}

// failed tells the journal of the file.
func (o *runover) failed(err error) {
	const pause = time.Minute
	now := time.Now()
	switch {
	case err == nil && !o.told.IsZero():
		o.told = time.Time{}
		o.line.log.Info("what has no room in memory runs over into its file again")
	case err != nil && now.Sub(o.told) >= pause && o.line != nil:
		o.told = now
		o.line.log.Warn("what has no room in memory cannot run over into its file; make room, see to the disk, or name another folder by spill.path",
			"path", o.spill.Dir, "error", err)
	}
}

// ReadAt, WriteAt, Size, Room and Close are those of the file.
func (o *runover) ReadAt(b []byte, at int64) (int, error)  { return o.file.ReadAt(b, at) }
func (o *runover) WriteAt(b []byte, at int64) (int, error) { return o.file.WriteAt(b, at) }
func (o *runover) Room() (int64, error)                    { return sys.FreeBytes(o.spill.Dir) }

func (o *runover) Size() (int64, error) {
	info, err := o.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Close gives its room back.
func (o *runover) Close() error {
	err := o.closeFile()
	if o.line != nil { // else begin puts the near spool there
		o.put()
	} else {
		o.known = false
	}
	return err
}

var _ spool.SpillFile = (*runover)(nil)
