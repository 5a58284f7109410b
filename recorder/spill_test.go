package recorder

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// badFiles is files of spills in memory, which do what they are told.
type badFiles struct {
	mu      sync.Mutex
	free    int64         // room of the disk, where a file is empty
	write   error         // of each write, half of which is made
	open    error         // of each opening
	read    error         // of each read
	damage  bool          // what is read has one bit changed
	delay   time.Duration // of each call
	files   int           // that are open
	opened  int           // … ever
	written int           // bytes ever
}

type badFile struct {
	*badFiles
	data []byte
}

// tell changes what they do.
func (f *badFiles) tell(change func(f *badFiles)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// mend makes them do what they should.
func (f *badFiles) mend() {
	f.tell(func(f *badFiles) { f.free, f.write, f.open, f.read, f.damage, f.delay = 1<<40, nil, nil, nil, false, 0 })
}

func (f *badFiles) rest() {
	f.mu.Lock()
	d := f.delay
	f.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

func (f *badFiles) create(string) (spillFile, error) {
	f.rest()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != nil {
		return nil, f.open
	}
	f.files++
	f.opened++
	return &badFile{badFiles: f}, nil
}

func (f *badFile) room() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.free - int64(len(f.data)), nil
}

func (f *badFile) WriteAt(b []byte, at int64) (int, error) {
	f.rest()
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.write
	if err != nil {
		b = b[:len(b)/2]
	}
	if grow := int(at) + len(b) - len(f.data); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	f.written += len(b)
	return copy(f.data[at:], b), err
}

func (f *badFile) ReadAt(b []byte, at int64) (int, error) {
	f.rest()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read != nil {
		return 0, f.read
	}
	if int(at)+len(b) > len(f.data) {
		return 0, io.ErrUnexpectedEOF
	}
	copy(b, f.data[at:])
	if f.damage {
		b[len(b)/2] ^= 0x10
	}
	return len(b), nil
}

func (f *badFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files--
	return nil
}

// timedLog is a stubLog that looks at the times of frames, too: each is its number.
type timedLog struct {
	stubLog
	wrong []int64
}

func (s *timedLog) TryAppendAt(stream uint32, at int64, offset uint64, data []byte) (uint64, error) {
	seq, err := s.stubLog.TryAppendAt(stream, at, offset, data)
	if err == nil && at != int64(s.kept[len(s.kept)-1]) {
		s.wrong = append(s.wrong, at)
	}
	return seq, err
}

// spillLane is a lane whose frames run over into a file, each read at a time that is its number.
type spillLane struct {
	*lane
	log  timedLog
	file badFiles
	sent uint64
}

func newSpillLane(t *testing.T, buffer, most config.Size) *spillLane {
	t.Helper()
	cfg := config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowSpill, Buffer: buffer, Spill: &config.Spill{Max: most},
	}
	s := &spillLane{}
	s.file.mend()
	var err error
	if s.lane, err = newLane(cfg, &s.log, 1, 0); err != nil {
		t.Fatal(err)
	}
	openSpill = s.file.create
	t.Cleanup(func() { openSpill = newSpillFile })
	return s
}

// send has so many frames read, and waits where the lane takes none for a moment.
func (s *spillLane) send(n int) {
	for range n {
		for fresh := tally128.Size; ; fresh = 0 { // what is read and not taken is shown again
			if done, _ := s.Arrived(frames(s.sent, 1), fresh, int64(s.sent)); done > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		s.sent++
	}
}

func (s *spillLane) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.err = err
}

// commit has the log store all that it has.
func (s *spillLane) commit() {
	s.mu.Lock()
	last := s.log.seq
	s.mu.Unlock()
	s.settle(seglog.Commit{Stored: last, Durable: last}, int64(s.sent))
}

// goesOn has the log take all that waits.
func (s *spillLane) goesOn() {
	s.set(nil)
	for range 3 {
		s.commit()
		time.Sleep(2 * spillRetry)
	}
}

// check looks at what has become of all frames: those that are kept are in order, and all others
// are dropped by these causes.
func (s *spillLane) check(t *testing.T, causes ...string) {
	t.Helper()
	f := balanced(t, s.lane)
	spilled := s.lane.sheet().Spilled
	synctest.Wait() // nobody is at work
	if f.InFlight != 0 || f.OK != s.sent || f.Stored != uint64(len(s.log.kept)) || f.Missing+f.Duplicate != 0 {
		t.Errorf("%d sent, %d kept by the log; the books: %+v", s.sent, len(s.log.kept), f)
	}
	for i := 1; i < len(s.log.kept); i++ {
		if s.log.kept[i] <= s.log.kept[i-1] {
			t.Fatalf("frame %d is kept behind %d", s.log.kept[i], s.log.kept[i-1])
		}
	}
	if len(s.log.wrong) > 0 {
		t.Errorf("%d frames have other times: %v", len(s.log.wrong), s.log.wrong[:min(5, len(s.log.wrong))])
	}
	for cause := range f.Dropped {
		if !slices.Contains(causes, cause) {
			t.Errorf("dropped: %v, want %v", f.Dropped, causes)
		}
	}
	for _, cause := range causes {
		if f.Dropped[cause] == 0 {
			t.Errorf("dropped: %v, want %v", f.Dropped, causes)
		}
	}
	if b := &s.lane.out.backlog; b.bytes != 0 || b.front.frames != 0 || b.over.stands() {
		t.Errorf("nothing waits, and the backlog has %+v", b)
	}
	if s.file.files != 0 || spilled != 0 {
		t.Errorf("nothing waits, and %d files are open; spilled_bytes %d", s.file.files, spilled)
	}
}

// A log that stands still for a while costs a source nothing that has a file, and one without what
// its buffer does not hold.
func TestSpillLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpillLane(t, 256<<10, 64<<20)
		s.send(100)
		s.set(seglog.ErrBusy)
		for range 200 {
			s.send(100)
			synctest.Wait()
			balanced(t, s.lane)
		}
		if p := s.lane.sheet(); p.Frames.InFlight != s.sent || p.Spilled < (s.sent-4096)*tally128.Size {
			t.Errorf("%d of %d frames in flight, %d bytes in the file", p.Frames.InFlight, s.sent, p.Spilled)
		}
		s.goesOn()
		s.check(t)
		if s.file.opened != 1 || s.file.written == 0 {
			t.Errorf("%d files, %d bytes written", s.file.opened, s.file.written)
		}
		s.send(10) // and goes on as ever
		s.goesOn()
		s.check(t)
		without, log := testLane(t, config.OverflowNewest)
		log.err = seglog.ErrBusy
		without.Arrived(frames(0, 20_000), 20_000*tally128.Size, 1)
		if f := balanced(t, without); f.Dropped[causeNewest] == 0 {
			t.Errorf("without a file: %+v", f)
		}
	})
}

// What a full disk of the log, and what a file that is full, slow, or broken costs, is counted by
// cause; the recording goes on.
func TestSpillInTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		harm   func(f *badFiles)
		log    error
		late   func(f *badFiles) // behind the writing
		causes []string
	}{
		"the log's disk is full": {log: seglog.ErrDiskFull},
		"it has its size":        {causes: []string{causeSpillFull}},
		"its disk has no room": {
			harm:   func(f *badFiles) { f.free = 300 << 10 },
			causes: []string{causeSpillFull},
		},
		"its disk says so": {
			harm:   func(f *badFiles) { f.write = syscall.ENOSPC },
			causes: []string{causeSpillFull},
		},
		"it cannot be made": {
			harm:   func(f *badFiles) { f.open = syscall.EACCES },
			causes: []string{causeSpillFailed},
		},
		"it cannot be written": {
			harm:   func(f *badFiles) { f.write = syscall.EIO },
			causes: []string{causeSpillFailed},
		},
		"it stands still": {
			harm:   func(f *badFiles) { f.delay = time.Hour },
			causes: []string{causeSpillSlow},
		},
		"it cannot be read": {
			late:   func(f *badFiles) { f.read = syscall.EIO },
			causes: []string{causeSpillFailed},
		},
		"what is read is damaged":    {late: func(f *badFiles) { f.damage = true }, causes: []string{causeSpillFailed}},
		"it cannot be written later": {late: func(f *badFiles) { f.write = syscall.EIO }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				most := config.Size(64 << 20)
				if name == "it has its size" {
					most = 1 << 20
				}
				s := newSpillLane(t, 256<<10, most)
				s.lane.out.backlog.over.reserve = 16 << 10
				if c.harm != nil {
					s.file.tell(c.harm)
				}
				if s.set(seglog.ErrBusy); c.log != nil {
					s.set(c.log)
				}
				for range 300 {
					s.send(100)
					synctest.Wait()
					balanced(t, s.lane)
				}
				if c.late != nil {
					s.file.tell(c.late)
				}
				s.goesOn()
				time.Sleep(3 * time.Hour)
				s.goesOn()
				s.check(t, c.causes...)
				s.file.mend()
				before := len(s.log.kept)
				s.set(seglog.ErrBusy)
				for range 50 {
					s.send(100)
					synctest.Wait()
				}
				s.goesOn()
				if n := len(s.log.kept) - before; n != 5000 {
					t.Errorf("once it is mended, %d of 5000 frames are kept", n)
				}
				s.check(t, c.causes...)
			})
		})
	}
}

// A file whose write fails for a while takes what it did not get, behind that.
func TestSpillTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpillLane(t, 256<<10, 64<<20)
		s.set(seglog.ErrBusy)
		s.file.tell(func(f *badFiles) { f.write = syscall.EIO })
		s.send(1500) // within the buffer
		time.Sleep(3 * spillRetry)
		s.file.mend()
		time.Sleep(spillRetry)
		for range 50 {
			s.send(100)
			synctest.Wait()
		}
		s.goesOn()
		s.check(t)
	})
}

// What had run over and is not taken when the recorder has stopped is lost, and its file is closed,
// also in a call of the file.
func TestSpillIsLostAtTheEnd(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpillLane(t, 256<<10, 64<<20)
			s.set(seglog.ErrBusy)
			for range 50 {
				s.send(100)
				synctest.Wait()
			}
			s.file.tell(func(f *badFiles) { f.delay = delay })
			s.send(600) // is being written
			synctest.Wait()
			s.set(seglog.ErrClosed)
			s.settle(seglog.Commit{}, 1)
			if n := s.lose(causeStopped); n != s.sent {
				t.Errorf("%d frames are lost, of %d", n, s.sent)
			}
			balanced(t, s.lane)
			time.Sleep(time.Minute)
			s.check(t, causeStopped)
		})
	}
}

// Frames that came late, and that nobody can read back, are not followed any more. Where nobody
// knows which those were, the books say so.
func TestSpillForgetsWhatItLost(t *testing.T) {
	for name, forgotten := range map[string]uint64{"its numbers are known": 0, "it had too many runs": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpillLane(t, 256<<10, 64<<20)
				if forgotten > 0 {
					s.lane.out.backlog.over.runs = maxSpillRuns
				}
				s.set(seglog.ErrBusy)
				s.send(1000)
				late := s.sent
				s.sent++
				s.send(10)
				s.Arrived(frames(late, 1), tally128.Size, int64(late))
				s.send(3000)
				synctest.Wait()
				s.file.tell(func(f *badFiles) { f.read = syscall.EIO })
				s.goesOn()
				if f := balanced(t, s.lane); f.InFlight != 0 || f.Dropped[causeSpillFailed] == 0 ||
					len(s.lane.out.filled) != 0 || f.Forgotten != forgotten {
					t.Errorf("%+v; late frames that wait: %v", f, s.lane.out.filled)
				}
			})
		})
	}
}

// Frames that nobody can read back are dropped by number: where the recorder is killed while others
// wait behind them, the next one does not call them missing, too. A late frame behind them is
// followed as before.
func TestSpillNamesWhatItLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpillLane(t, 256<<10, 64<<20)
		s.send(1)
		s.commit()
		s.set(seglog.ErrBusy)
		for range 30 {
			s.send(100)
			synctest.Wait()
		}
		late := s.sent
		s.sent++
		s.send(10)
		s.Arrived(frames(late, 1), tally128.Size, int64(late)) // stays in memory
		s.file.tell(func(f *badFiles) { f.read = syscall.EIO })
		s.mu.Lock()
		for s.log.err = nil; s.lane.out.backlog.front.frames > 0; { // the log takes the front
			s.lane.out.drain()
		}
		s.log.err = seglog.ErrBusy
		s.mu.Unlock()
		stored := len(s.log.kept)
		s.commit()
		synctest.Wait()
		if late := s.lane.out.filled; len(late) != 1 {
			t.Errorf("late frames that wait: %v", late)
		}
		s.namesOnce(t, causeSpillFailed, stored)
	})
}

// namesOnce has the recorder killed now, while frames are in flight: what is in the log of so many
// stored is in no count, and all others are dropped for a cause, or missing in the next start.
func (s *spillLane) namesOnce(t *testing.T, cause string, stored int) {
	t.Helper()
	first, accounted, _, _ := s.statement()
	if first.Frames.Dropped[cause] == 0 || first.Frames.InFlight == 0 {
		t.Fatalf("%+v", first.Frames)
	}
	after, _ := testLane(t, config.OverflowBlock)
	after.resume(place{seen: accounted, stored: accounted})
	after.Arrived(frames(s.sent, 1), tally128.Size, int64(s.sent))
	second := balanced(t, after)
	if named, want := first.Frames.Dropped[cause]+second.Missing, s.sent-uint64(stored); named != want {
		t.Errorf("%d numbers are not in the log, %d are named; %+v, then %+v; behind %+v", want, named, first.Frames,
			second, accounted)
	}
}

// So are those that a log had in its hands when it failed, while others wait in the file.
func TestFailedLogNamesWhatItHadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpillLane(t, 256<<10, 64<<20)
		s.send(1)
		s.commit()
		s.send(10)
		s.set(seglog.ErrBusy)
		for range 30 {
			s.send(100)
			synctest.Wait()
		}
		s.file.tell(func(f *badFiles) { f.delay = time.Minute })
		s.set(seglog.ErrFailed)
		s.settle(seglog.Commit{Stored: 3, Durable: 1, Err: seglog.ErrFailed}, int64(s.sent))
		s.namesOnce(t, causeFailed, 3)
		s.file.mend()
		time.Sleep(2 * time.Minute) // the call that is under way ends
	})
}

// The model: a random life of log and file. Each frame comes out once and in order, with its time,
// or is counted; the sheet balances at each step.
func TestSpillModel(t *testing.T) {
	for seed := range uint64(testenv.Rounds(30, 6)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				s := newSpillLane(t, 256<<10, config.Size(1+rng.IntN(8))<<20)
				file := []func(f *badFiles){
					func(f *badFiles) { f.write = syscall.EIO }, func(f *badFiles) { f.write = syscall.ENOSPC },
					func(f *badFiles) { f.read = syscall.EIO }, func(f *badFiles) { f.damage = true },
					func(f *badFiles) { f.open = syscall.EMFILE }, func(f *badFiles) { f.free = rng.Int64N(1 << 20) },
					func(f *badFiles) { f.delay = time.Duration(rng.IntN(3000)) * time.Millisecond },
				}
				for range 300 {
					switch rng.IntN(10) {
					case 0:
						s.set([]error{nil, seglog.ErrBusy, seglog.ErrDiskFull}[rng.IntN(3)])
					case 1:
						s.commit()
					case 2:
						if s.file.mend(); rng.IntN(3) > 0 {
							s.file.tell(file[rng.IntN(len(file))])
						}
					case 3:
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					case 4:
						synctest.Wait()
					default:
						s.send(rng.IntN(1000))
					}
					if balanced(t, s.lane); t.Failed() {
						t.Fatal("at some step")
					}
				}
				s.file.mend()
				time.Sleep(time.Minute)
				s.goesOn()
				var causes []string
				for cause := range s.lane.sheet().Frames.Dropped {
					causes = append(causes, cause)
				}
				s.check(t, causes...)
			})
		})
	}
}

// Extents lie where no other one does, and within the size.
func TestSpillPlaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := &spill{most: 1000}
	wrapped, full := 0, 0
	for range 100_000 {
		n := 1 + rng.IntN(300)
		if at, ok := s.place(n); ok && rng.IntN(3) > 0 {
			for _, e := range s.extents {
				if at < e.at+int64(e.n) && e.at < at+int64(n) {
					t.Fatalf("%d bytes at %d lie over %+v", n, at, e)
				}
			}
			if at+int64(n) > s.most {
				t.Fatalf("%d bytes at %d, of %d", n, at, s.most)
			}
			if at < s.end {
				wrapped++
			}
			s.wrote(extent{at: at, n: n}, nil)
		} else if len(s.extents) > 0 {
			if !ok {
				full++
			}
			s.extents = s.extents[1:]
		}
	}
	if wrapped < 1000 || full < 1000 {
		t.Errorf("it began anew %d times, and was full %d times", wrapped, full)
	}
}

// The real file has no name, and is written and read as any.
func TestSpillFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	f, err := newSpillFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	got := make([]byte, 5)
	_, writeErr := f.WriteAt([]byte("spill"), 7)
	_, readErr := f.ReadAt(got, 7)
	_, roomErr := f.room()
	if err := errors.Join(writeErr, readErr, roomErr, f.Close()); err != nil || string(got) != "spill" {
		t.Errorf("%q, %v", got, err)
	}
}
