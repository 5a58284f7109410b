package forward

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// destination is one that the log goes on to. All but what mu guards belongs to the goroutine of
// run.
type destination struct {
	cfg   config.Forward
	slog  *slog.Logger
	in    *archive.Archive
	log   [16]byte // identity
	dial  func(context.Context, *destination) (link, error)
	path  string // of the mark
	mark  *mark
	fresh bool // there was no mark of this log: it begins with the oldest record that is there
	all   map[laneKey]*lane
	grace grace
	told  string        // the fault that was logged last
	last  chan struct{} // closed: what is durable is to be sent, and then nothing more

	mu     sync.Mutex
	book   ledger.Forwarding // Through is live, and not the mark's
	caught int64             // when everything was acknowledged last, ns since 1970
	hold   uint64            // first record that is to stay in the log
}

// Times between tries to connect: the first, and the longest.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 15 * time.Second
	goodTime   = 30 * time.Second // a link that lasts so long begins with the first again
)

// errSent ends a session that has brought everything away, and is the last.
var errSent = errors.New("everything is sent")

// finishes reports whether it is to end once everything is sent.
func (d *destination) finishes() bool {
	select {
	case <-d.last:
		return true
	default:
		return false
	}
}

// run connects again and again.
func (d *destination) run(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		err := d.session(ctx)
		if ctx.Err() != nil || errors.Is(err, errSent) {
			return
		}
		if errors.Is(err, errLookAgain) {
			continue
		}
		d.failed(faultOf(err))
		if time.Since(began) > goodTime {
			pause = firstPause
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-d.last: // nobody is there to bring it to
			wait.Stop()
			return
		case <-wait.C:
		}
		pause = min(2*pause, longPause)
	}
}

// session is one connection.
func (d *destination) session(ctx context.Context) error {
	to, err := d.dial(ctx, d)
	if err != nil {
		return err
	}
	defer to.close()
	w, err := d.walker(ctx, to)
	if err != nil {
		return err
	}
	d.publish(w)
	d.connected()
	return w.walk(ctx)
}

// walker asks where each lane goes on, and begins with the one that is farthest behind.
func (d *destination) walker(ctx context.Context, to link) (*walker, error) {
	w := &walker{d: d, to: to, lanes: map[laneKey]*lane{}, near: map[*archive.Stream]*lane{}}
	for _, s := range d.in.Streams.All() {
		key := laneKey{s.Source, s.Quarantine}
		if d.cfg.Source != "" && !archive.Selects(d.cfg.Source, s.Source) || s.Quarantine && !d.cfg.Quarantine ||
			w.lanes[key] != nil {
			continue
		}
		w.lanes[key] = d.lane(key)
	}
	if err := w.resumeAll(ctx); err != nil {
		return nil, err
	}
	w.at = d.mark.Through
	if d.fresh {
		w.at = max(w.at, d.in.First()-1)
	}
	for _, l := range w.lanes {
		if l.fault != nil {
			w.stopped++
			d.tell(l)
			continue
		}
		w.at = min(w.at, l.from)
	}
	w.c = d.in.Records(archive.Cursor{
		Query: archive.Query{From: w.at + 1, Source: d.cfg.Source, Wire: d.cfg.Quarantine},
		OnGap: func(gap *seglog.GapError) error { return d.gone(w, gap) },
	})
	return w, nil
}

// lane is that of a key, with nothing in its hands.
func (d *destination) lane(key laneKey) *lane {
	l := d.all[key]
	if l == nil {
		separator := "."
		if d.cfg.To == "mqtt" {
			separator = "/"
		}
		l = &lane{laneKey: key, subject: subjectOf(d.cfg.Subject, separator, key.source, key.quarantine)}
		l.book.ID, l.book.Quarantine = key.source, key.quarantine
		d.all[key] = l
	}
	l.lost = l.flying
	l.fault, l.filling, l.flying, l.parted, l.listed, l.gone, l.at = nil, nil, nil, false, false, 0, 0
	l.had = max(l.had, l.acked, d.mark.Sources[key.String()].Last)
	return l
}

// begin is up to where nothing is to be sent of a lane that the destination has nothing of, and had
// nothing.
func (d *destination) begin() uint64 {
	if d.fresh {
		return max(d.mark.Through, d.in.First()-1)
	}
	return d.mark.Through
}

// resumeAll asks where lanes go on, some at a time.
func (w *walker) resumeAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	lanes, results := make(chan *lane), make(chan error, len(w.lanes))
	for range min(resumers, len(w.lanes)) {
		all.Go(func() {
			for l := range lanes {
				err := w.to.resume(ctx, l)
				var f *fault
				if errors.As(err, &f) && f.lane {
					l.stop(f)
					err = nil
				}
				if err != nil {
					cancel()
				}
				results <- err
			}
		})
	}
	for _, l := range w.lanes {
		lanes <- l
	}
	close(lanes)
	all.Wait()
	close(results)
	var first error
	for err := range results {
		if err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	return first
}

// gone counts records that are not in the log any more and were not forwarded.
func (d *destination) gone(w *walker, gap *seglog.GapError) error {
	most := uint64(0)
	for _, l := range w.lanes {
		if from := max(gap.From, l.from+1); l.fault == nil && from <= gap.To {
			l.gone += gap.To - from + 1
			most = max(most, gap.To-from+1)
		}
	}
	w.at = max(w.at, gap.To)
	if most == 0 {
		return nil
	}
	d.slog.Error("records were removed from the log before they were forwarded", "destination", d.cfg.Name, "from",
		gap.From, "to", gap.To)
	d.mu.Lock()
	d.book.Gone += most
	d.mu.Unlock()
	return nil
}

// save brings the mark up to date.
func (d *destination) save(w *walker) {
	through := w.through()
	settled := d.grace.settle(time.Now(), through, d.mark.Settled)
	d.mu.Lock()
	d.book.Through, d.hold = through, min(settled, through)+1
	d.mu.Unlock()
	news := through > d.mark.Through || settled > d.mark.Settled || d.fresh
	d.mark.Through, d.mark.Settled, d.fresh = max(d.mark.Through, through), max(d.mark.Settled, settled), false
	for key, l := range w.lanes {
		name := key.String()
		if was := d.mark.Sources[name]; l.acked > was.Last || l.acked == was.Last && l.at > was.Seq {
			d.mark.Sources[name] = source{l.acked, l.at, ledger.Time(time.Now().UnixNano())}
			news = true
		}
	}
	if !news {
		return
	}
	if err := d.mark.save(d.path); err != nil {
		d.slog.Warn("how far forwarding has come cannot be written down; make room, or see to the disk", "destination",
			d.cfg.Name, "error", err)
	}
}

// publish renews the books, which others read.
func (d *destination) publish(w *walker) {
	var sources []ledger.ForwardSource
	for _, l := range w.lanes {
		sources = append(sources, l.account())
	}
	slices.SortFunc(sources, func(a, b ledger.ForwardSource) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), order(a.Quarantine)-order(b.Quarantine))
	})
	upTo := int64(math.MaxInt64)
	for _, l := range w.lanes {
		if _, at := l.oldest(); at > 0 {
			upTo = min(upTo, at)
		}
	}
	through, durable, now := w.through(), d.in.Durable(), time.Now().UnixNano()
	if through < durable && upTo == math.MaxInt64 && w.c.Mark().Time > 0 {
		upTo = w.c.Mark().Time
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.Sources, d.book.Through = sources, through
	if d.caught = min(upTo, now); upTo == math.MaxInt64 && through < durable { // nothing was read yet
		d.caught = int64(d.book.Since)
	}
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tell logs why a lane has stopped, once.
func (d *destination) tell(l *lane) {
	if l.told != l.fault.why {
		l.told = l.fault.why
		d.slog.Error("forwarding a source has stopped", "destination", d.cfg.Name, "source", l.source, "why",
			l.fault.why)
	}
}

// connected notes that frames go out.
func (d *destination) connected() {
	d.mu.Lock()
	was := d.book.State
	d.book.State, d.book.Reason, d.book.Why = ledger.ForwardOn, "", ""
	if was != ledger.ForwardOn {
		d.book.Since = ledger.Time(time.Now().UnixNano())
	}
	if was == ledger.ForwardDown || was == ledger.ForwardStopped {
		d.book.Reconnects++
	}
	d.mu.Unlock()
	d.told = ""
	if was != ledger.ForwardOn {
		d.slog.Info("forwarding", "destination", d.cfg.Name, "to", d.book.Address)
	}
}

// failed notes why a session has ended, and tells, once.
func (d *destination) failed(f *fault) {
	state := ledger.ForwardDown
	if f.stopped {
		state = ledger.ForwardStopped
	}
	d.mu.Lock()
	if d.book.State != state || d.book.Reason != f.reason {
		d.book.Since = ledger.Time(time.Now().UnixNano())
	}
	d.book.State, d.book.Reason, d.book.Why = state, f.reason, f.why
	d.mu.Unlock()
	if d.told == f.why {
		return
	}
	d.told = f.why
	if f.stopped {
		d.slog.Error("forwarding has stopped", "destination", d.cfg.Name, "why", f.why)
	} else {
		d.slog.Warn("the destination takes no frames now, and is tried again", "destination", d.cfg.Name, "why", f.why)
	}
}

// account is the books of this moment.
func (d *destination) account() ledger.Forwarding {
	d.mu.Lock()
	b, caught := d.book, d.caught
	d.mu.Unlock()
	durable := d.in.Durable()
	b.Sources = slices.Clone(b.Sources)
	if b.Sources == nil {
		b.Sources = []ledger.ForwardSource{}
	}
	if durable > b.Through {
		b.LagRecords, b.LagBytes, b.UpTo = durable-b.Through, d.in.BytesAfter(b.Through), ledger.Time(caught)
	}
	return b
}
