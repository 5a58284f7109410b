package recorder

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/reader"
)

// Reopening a port: at first at once, then less and less often.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// finishPatience is how long a port that stops is read on: what the kernel holds by then is
// counted, and thrown away. Tests have less.
var finishPatience = 5 * time.Second

// Causes of bytes that the kernel had taken and nobody read.
const (
	unreadStopped  = archive.CauseStopped // the source stopped, and the log did not take what waited
	unreadFailed   = "failed"             // the reader could not take the device
	unreadRefused  = "refused"            // there were no books for its sender
	unreadReplaced = "replaced"           // a newer connection took over, and the log did not take what waited
)

// port keeps one source open: it opens the device, has it read, and opens it again when it is gone.
type port struct {
	lane   *lane
	opener opener
	add    func(l *lane, d device, before []byte) (reader.Handle, error)
	log    *slog.Logger
	cancel context.CancelFunc
	handOn parting         // once ctx is done
	until  time.Time       // … and when what has arrived is read no longer; zero: finishPatience from then
	left   []device        // … and this was open
	halves map[device]half // what was half read of devices that another port has left; nobody writes to it
	done   chan struct{}   // closed by keepOpen, keepRemote or hub.run

	// peers is the ports of its peers. They are written under Recorder.mu by the goroutine of
	// hub.run, and before that runs by whoever begins it (hub.goOn, hub.await, hub.takes): those
	// read them without the lock. Everybody else holds it, until the port has stopped.
	peers []*port
	hub   *hub // nil: it has a device of its own

	remote   *remote       // nil: this process reads it
	departed chan struct{} // closed once all is stored of a port that has stopped
}

// handover is what a port that has stopped leaves open for the next.
type handover struct {
	opener  opener
	devices []device // those that were open: one at most, but of a hub
	halves  map[device]half
}

// parting is what a port that stops does with what is open.
type parting int

const (
	closeAll  parting = iota // what has arrived is read, and everything closed
	leaveOpen                // what has arrived stays where it is for the port that goes on with it
	leaveHalf                // … which goes on with what was half read, too
)

// newPort makes the port of a lane in this process, with what another port has left, or with
// nothing. Somebody is to keep it open until ctx is done.
func newPort(l *lane, from *handover, add func(*lane, device, []byte) (reader.Handle, error), log *slog.Logger) (*port,
	context.Context,
) {
	p, ctx := newRemotePort(l, nil, log)
	p.add = add
	if from != nil {
		p.opener, p.halves = from.opener, from.halves
	} else {
		p.opener = openSource(l.cfg)
	}
	if o, ok := p.opener.(*listener); ok {
		o.peers = l.cfg.TCP.Peers
	}
	if o, ok := p.opener.(door); ok {
		l.runsShort(o.counts().short.is)
	}
	return p, ctx
}

// newRemotePort makes the port of a lane that another process reads.
func newRemotePort(l *lane, rm *remote, log *slog.Logger) (*port, context.Context) {
	ctx, cancel := context.WithCancel(context.Background())
	return &port{
		lane: l, remote: rm, log: log.With("source", l.cfg.ID), cancel: cancel, done: make(chan struct{}),
		departed: make(chan struct{}),
	}, ctx
}

// stop ends the reading: what has arrived by now is read first, unless it is left. Bytes read are
// framed, or left; frames are in the log or the backlog when it returns.
func (p *port) stop(how parting) *handover {
	p.handOn = how
	p.cancel()
	<-p.done
	if how == closeAll {
		return nil
	}
	return &handover{p.opener, p.left, p.halves}
}

// stopUntil is stop with closeAll, within a time that others have begun.
func (p *port) stopUntil(deadline time.Time) {
	p.until = deadline
	p.stop(closeAll)
}

// finishBy is when a port that stops reads no longer; ctx is done.
func (p *port) finishBy() time.Time {
	if p.until.IsZero() {
		p.until = time.Now().Add(finishPatience)
	}
	return p.until
}

// keepOpen runs until ctx is done. It begins with what another port has left open, if from is not
// nil.
func (p *port) keepOpen(ctx context.Context, from *handover) {
	defer close(p.done)
	var first device // open already
	if from != nil && len(from.devices) > 0 {
		first = from.devices[0]
	}
	var t trouble
	var idle sockets.Idleness
	for ctx.Err() == nil {
		d, err := first, error(nil)
		if first = nil; d == nil {
			d, err = p.open(ctx, t == trouble{})
		} else {
			d.recount()
		}
		if err == nil {
			began, before := time.Now(), p.lane.bytesRead()
			var h reader.Handle
			if h, err = p.begin(d, time.Now().Add(finishPatience)); err == nil {
				t = trouble{}
				p.log.Debug("open", "device", d.name())
				if p.read(ctx, d, h); len(p.left) == 0 {
					p.end(d)
				}
				if p.dials() != "" {
					pause(ctx, idle.Next(time.Since(began), p.lane.bytesRead()-before))
				}
				continue
			}
		}
		if ctx.Err() != nil {
			break
		}
		pause(ctx, p.trouble(&t, err))
	}
	switch {
	case p.handOn == closeAll:
		p.readRest(first, p.finishBy())
	case first != nil:
		p.left = []device{first}
	}
	p.lane.stopped()
}

// pause waits for so long, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// dialler is an opener that may call the other side, again and again.
type dialler interface {
	dials() string // its address; "": it waits to be called
}

// dials is the address that the port's opener calls, "" if it calls nobody.
func (p *port) dials() string {
	if o, ok := p.opener.(dialler); ok {
		return o.dials()
	}
	return ""
}

// trouble is what has kept a port from being opened since it was open last.
type trouble struct {
	retry time.Duration
}

// trouble posts why a port cannot be opened, and returns when to try again.
func (p *port) trouble(t *trouble, err error) time.Duration {
	p.lane.outage(time.Now().UnixNano(), err.Error())
	p.lane.absent(err)
	p.log.Debug("cannot open; trying again", "error", err)
	t.retry = max(firstRetry, min(2*t.retry, lastRetry))
	return t.retry + rand.N(t.retry/2)
}

// begin has an open device read. After an error the device is closed. Should there be no
// descriptors to read it with, it tries again until the deadline.
func (p *port) begin(d device, deadline time.Time) (h reader.Handle, err error) {
	p.lane.opened(d, time.Now().UnixNano())
	before := p.halves[d]
	p.lane.restore(before)
	err = patiently(deadline, func() error {
		h, err = p.add(p.lane, d, before.bytes)
		return err
	})
	if err != nil {
		p.lane.unread(unreadFailed, d.discard()+uint64(len(before.bytes)))
		p.end(d)
		return nil, err
	}
	p.lane.attach(h)
	return h, nil
}

// end closes a device that is not read any more.
func (p *port) end(d device) {
	p.lane.detach()
	if err := d.close(); err != nil && !os.IsNotExist(err) {
		p.log.Warn("close", "error", err)
	}
}

// open opens the device. The port says meanwhile what it waits for; fresh: no attempt has failed
// since it was open last, so that there is no error which says it.
func (p *port) open(ctx context.Context, fresh bool) (device, error) {
	p.watchForAbsence(ctx)
	addr := p.dials()
	if addr == "" || !fresh {
		return p.opener.open(ctx)
	}
	began, why := time.Now(), outageConnecting+addr
	p.lane.awaits(why)
	var d device
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		d, err = p.opener.open(ctx)
	}()
	late := time.NewTimer(sockets.AnswersAtOnce)
	defer late.Stop()
	select {
	case <-answered:
	case <-late.C:
		p.lane.outage(began.UnixNano(), why)
		p.lane.absent(errors.New(why))
		<-answered
	}
	return d, err
}

// watchForAbsence opens an outage right away where the opener waits for the other side.
func (p *port) watchForAbsence(ctx context.Context) {
	switch o := p.opener.(type) {
	case *listener:
		if o.listen(ctx) != nil {
			return // nobody can connect: open says why
		}
	case *seat:
	default:
		return
	}
	p.lane.outage(time.Now().UnixNano(), outageNotConnected)
	p.lane.absent(ErrNotConnected)
}

// read waits until the reading has ended: by itself, because the source stops, or because a newer
// connection takes over.
func (p *port) read(ctx context.Context, d device, h reader.Handle) {
	newer := p.opener.replaced()
	look := time.NewTicker(takeover)
	defer look.Stop()
	var looks <-chan time.Time // from when a newer connection waits
	var before uint64
	for {
		select {
		case err := <-p.lane.closed:
			p.log.Debug("gone; opening it again", "cause", err)
			return
		case <-ctx.Done():
			if p.handOn != closeAll {
				p.leave(d, h)
				return
			}
			p.finish(d, h, unreadStopped, p.finishBy())
			return
		case <-newer:
			newer, looks, before = nil, look.C, p.lane.bytesRead()
			look.Reset(takeover)
		case <-looks:
			if now := p.lane.bytesRead(); now != before || d.waiting() { // it lives
				before = now
				continue
			}
			p.log.Debug("a newer connection takes over", "from", d.name())
			p.finish(d, h, unreadReplaced, time.Now().Add(finishPatience))
			return
		}
	}
}

// leave ends the reading, and leaves the device open.
func (p *port) leave(d device, h reader.Handle) {
	if p.handOn == leaveHalf {
		p.lane.leaves()
	}
	h.Remove()
	<-p.lane.closed
	p.lane.detach()
	p.left, p.halves = []device{d}, map[device]half{d: p.lane.remainder()}
}

// finish has what has arrived read to its end, and ends the reading. What the log does not take
// before the deadline is counted.
func (p *port) finish(d device, h reader.Handle, cause string, deadline time.Time) {
	p.lane.finishes(cause)
	d.deafen()
	h.Finish()
	patience := time.NewTimer(time.Until(deadline))
	defer patience.Stop()
	select {
	case <-p.lane.closed: // what a line brings from now on is of the time in which nobody records
		return
	case <-patience.C:
	}
	p.lane.late()
	h.Remove()
	<-p.lane.closed
	if n := d.discard(); n > 0 {
		p.lane.unread(cause, n)
		p.log.Debug("bytes that had arrived are thrown away unread", "bytes", n, "cause", cause, "device", d.name())
	}
}

// drainRest is how long a source that stops waits for descriptors before it asks for them again.
const drainRest = 20 * time.Millisecond

// drain ends the opener, and has what waits to be opened read, so many at a time as there are
// descriptors for. What it could not take until the deadline is counted.
func (p *port) drain(deadline time.Time, read func([]device)) {
	for {
		rest, more, err := p.opener.close(!time.Now().Before(deadline))
		if err != nil {
			p.log.Warn("close", "error", err)
		}
		var left *untaken
		if errors.As(err, &left) {
			p.lane.refuse(refusedDescriptors, uint64(left.connections), left.bytes)
		}
		if read(rest); !more {
			return
		}
		if len(rest) == 0 {
			time.Sleep(drainRest)
		}
	}
}

// readRest reads what waits when the source stops: first, if that was not begun, and connections.
func (p *port) readRest(first device, deadline time.Time) {
	p.drain(deadline, func(rest []device) {
		if first != nil {
			first.recount()
			rest = append([]device{first}, rest...)
			first = nil
		}
		for _, d := range rest {
			if h, err := p.begin(d, deadline); err == nil {
				p.finish(d, h, unreadStopped, deadline)
				p.end(d)
			}
		}
	})
}
