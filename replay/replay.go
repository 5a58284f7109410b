// Package replay puts what a log has of a source onto a wire again, byte for byte and pause for
// pause: to show an incident to the software of a device, or to another recorder.
//
// # What is played
//
// The frames of the source, and where the recorder kept them (quarantine: true) the bytes between
// them that were no frame, where they were on the wire. Records that were read at once go out at
// once, and the time between two reads passes between two writes: so what is known of the line is
// as fine as the recorder's reads were. A frame has the time when its last byte was read.
//
// # What is not
//
// Bytes that are not in the log: what was damaged where nothing was quarantined, frames that were
// dropped or lost, and what retention removed. [Result] says what is known of that. A clock that
// was set back makes no pause, one that was set on makes one: see [Config.MaxPause].
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/seglog"
)

// Config says what is played, and how fast.
type Config struct {
	Source   string        // exactly this one: each peer of a source has a wire of its own
	From     uint64        // sequence in the log to begin with; 0: the first one, or that of Since
	Since    int64         // ns since 1970: only records made at this time or after it; 0: all
	Until    int64         // … or before it; 0: all
	Speed    float64       // times as fast as it was recorded; 0: as fast as the receiver takes it
	MaxPause time.Duration // no pause of the recording is longer, before Speed; 0: they may be
	// is told of records that the log has removed, or notes to be lost; nil: nobody is
	OnGap      func(*seglog.GapError)
	OnProgress func(Result) // is told once a second, without Late; nil: nobody is
}

// Result is what was played.
type Result struct {
	Frames      uint64        `json:"frames"`
	Quarantined uint64        `json:"quarantined"` // records of bytes that were no frame
	Bytes       uint64        `json:"bytes"`
	NotThere    uint64        `json:"not_there"` // bytes of the wire that are known to be in no record
	First       time.Time     `json:"first"`     // when the first record was made …
	Last        time.Time     `json:"last"`      // … and the last
	Took        time.Duration `json:"took_ns"`
	Late        Lateness      `json:"late"`
}

// Lateness is how much later than it was due each write began; nothing is early. With Speed 0
// nothing is due.
type Lateness struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// Wire is where the bytes go.
type Wire interface {
	// Send puts the bytes of one read on the wire, all of them or an error. It waits for a slow
	// receiver as long as that takes some, within a bound.
	Send(ctx context.Context, b []byte) error
	// Finish waits, within a bound, until the receiver has all that was sent.
	Finish(ctx context.Context) error
	// MaxSend is how much may be sent at once; where it is a datagram, what was read at once is not
	// cut to fit, but refused.
	MaxSend() (n int, datagram bool)
	// Gone is an error, which wraps ErrGone, if the receiver has gone away, as far as that can be
	// known without sending. It does not wait.
	Gone() error
}

// ErrNothing says that the log has no record that was asked for.
var ErrNothing = errors.New("nothing to play")

// chunk is what was read at once.
type chunk struct {
	at   int64 // ns since 1970
	data []byte

	frames, quarantined, notThere uint64
	seq                           uint64 // of its last record
}

// ahead is how many chunks are read before they are due.
const ahead = 64

// Run plays records to a wire. One goroutine reads the log ahead of the one that waits and writes,
// which has a thread of its own: only so it is woken in time.
func Run(ctx context.Context, log *archive.Archive, cfg Config, w Wire) (Result, error) {
	if cfg.Source == "" {
		return Result{}, errors.New("of which source?")
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	f := &feeder{cfg: cfg, out: make(chan chunk, ahead)}
	f.room, f.datagram = w.MaxSend()
	done := make(chan error, 1)
	go func() {
		defer close(f.out)
		done <- f.read(reading, log)
	}()
	p := &player{cfg: cfg, wire: w, late: hist.New()}
	err := p.play(ctx, f.out)
	p.late.Turn()
	us, µs := p.late.Last(), func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	p.result.Late = Lateness{µs(us.P50), µs(us.P99), µs(us.Max)}
	stop()
	for range f.out { // let the feeder end
	}
	fed := <-done
	if err == nil && p.result.Bytes > 0 { // what was read before damage was sent, too
		err = w.Finish(ctx)
	}
	if err == nil && fed == nil && p.result.Bytes == 0 {
		err = ErrNothing
	}
	return p.result, errors.Join(err, fed)
}

// player is the goroutine that waits and writes.
type player struct {
	cfg    Config
	wire   Wire
	late   *hist.Histogram
	result Result
	began  time.Duration // by rt.Now
	due    time.Duration // of the chunk at hand, after began, at speed 1
	before int64         // when the one before was recorded
	told   time.Duration
}

func (p *player) play(ctx context.Context, chunks <-chan chunk) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel may wake a sleeper up to 50 µs later, to save energy; not this one. It is of this
	// thread alone, and goes with it where it cannot be taken back.
	if slack, err := rt.TimerSlack(); err == nil && rt.SetTimerSlack(1) == nil {
		defer func() { _ = rt.SetTimerSlack(slack) }()
	}
	for c := range chunks {
		if err := p.wait(ctx, c); err != nil {
			return err
		}
		if err := p.wire.Send(ctx, c.data); err != nil {
			return fmt.Errorf("record %d: %w", c.seq, err)
		}
		p.count(c)
	}
	return ctx.Err()
}

// nap is how long the player sleeps before it looks whether it has been ended, or left.
const nap = 50 * time.Millisecond

// wait sleeps until a chunk is due.
func (p *player) wait(ctx context.Context, c chunk) error {
	now := rt.Now()
	if p.before == 0 {
		p.began, p.told, p.result.First = now, now, time.Unix(0, c.at).UTC()
	} else {
		pause := max(0, time.Duration(c.at-p.before))
		if p.cfg.MaxPause > 0 {
			pause = min(pause, p.cfg.MaxPause)
		}
		p.due += pause
	}
	p.before = c.at
	if p.cfg.Speed == 0 {
		return ctx.Err()
	}
	at := p.began + time.Duration(float64(p.due)/p.cfg.Speed)
	for ; now < at; now = rt.Now() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.wire.Gone(); err != nil {
			return fmt.Errorf("before record %d: %w", c.seq, err)
		}
		if err := rt.SleepUntil(min(at, now+nap)); err != nil {
			return err
		}
	}
	p.late.Record(now-at, 1)
	return ctx.Err()
}

func (p *player) count(c chunk) {
	r, now := &p.result, rt.Now()
	r.Frames, r.Quarantined, r.NotThere = r.Frames+c.frames, r.Quarantined+c.quarantined, r.NotThere+c.notThere
	r.Bytes += uint64(len(c.data))
	r.Last, r.Took = time.Unix(0, c.at).UTC(), now-p.began
	if p.cfg.OnProgress != nil && now-p.told >= time.Second {
		p.told = now
		p.cfg.OnProgress(*r)
	}
}

// feeder reads the log and makes chunks of it.
type feeder struct {
	cfg      Config
	room     int
	datagram bool
	out      chan chunk
	weave    weave
	at       chunk // being filled
}

// read goes through the log, up to the last record that it has now.
func (f *feeder) read(ctx context.Context, log *archive.Archive) error {
	last, err := log.Last()
	if err != nil {
		last = 0 // reading says what is wrong, and where
	}
	q := archive.Query{Source: f.cfg.Source, From: f.cfg.From, Since: f.cfg.Since, Until: f.cfg.Until, Wire: true}
	before, err := log.Before(q)
	for i := range before {
		err = errors.Join(err, f.gap(&before[i]))
	}
	if err != nil {
		return err
	}
	c := log.Records(archive.Cursor{Query: q, OnGap: f.gap})
	defer c.Close()
	for {
		if ctx.Err() != nil {
			return nil // whoever ended it says why
		}
		rec, of, ok, err := c.Next()
		if err == io.EOF || err == nil && last > 0 && rec.Seq > last && f.hasGrown(log, rec.Seq, &last) {
			break
		}
		if err != nil {
			return f.rest(ctx, err)
		}
		if rec.Seq == 1 { // nothing was before
			f.weave.knows = true
		}
		if !ok || of.Source != f.cfg.Source {
			continue
		}
		if err := f.take(ctx, f.weave.put(rec, of)); err != nil {
			return err
		}
	}
	return f.rest(ctx, nil)
}

// rest hands on what is left where the reading has ended, with an error or without. Of a datagram a
// part may be missing then.
func (f *feeder) rest(ctx context.Context, end error) error {
	if end != nil && f.datagram {
		return end
	}
	err := f.take(ctx, f.weave.rest())
	if err == nil {
		err = f.pass(ctx)
	}
	return errors.Join(end, err)
}

// gap tells of records that are not in the log. Where nobody has noted why, it is damage, and ends
// the reading.
func (f *feeder) gap(gap *seglog.GapError) error {
	if gap.Cause == seglog.GapDamage {
		return gap
	}
	if f.cfg.OnGap != nil {
		f.cfg.OnGap(gap)
	}
	return nil
}

// hasGrown reports whether a record behind the last one has come since. Else it is what is whole of
// a batch that was cut off, and nothing ends the walk but the log.
func (f *feeder) hasGrown(log *archive.Archive, seq uint64, last *uint64) bool {
	now, err := log.Last()
	if err == nil && now >= seq {
		return true
	}
	*last = 0
	return false
}

// take adds pieces to the chunk, which ends where they are of another time.
func (f *feeder) take(ctx context.Context, pieces []piece) error {
	for _, p := range pieces {
		full := !f.datagram && len(f.at.data)+len(p.data) > f.room
		if len(f.at.data) > 0 && (p.at != f.at.at || full) {
			if err := f.pass(ctx); err != nil {
				return err
			}
		}
		f.at.at, f.at.seq, f.at.data = p.at, p.seq, append(f.at.data, p.data...)
		if f.datagram && len(f.at.data) > f.room {
			return fmt.Errorf("record %d: more was read at once than a datagram has, %d bytes", p.seq, f.room)
		}
		f.at.notThere += p.missing
		if p.waste {
			f.at.quarantined++
		} else {
			f.at.frames++
		}
	}
	return nil
}

// pass hands the chunk to the player.
func (f *feeder) pass(ctx context.Context) error {
	c := f.at
	f.at = chunk{}
	if len(c.data) == 0 {
		return nil
	}
	select {
	case f.out <- c:
	case <-ctx.Done():
	}
	return nil
}
