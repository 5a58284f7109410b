package gateway

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/reader"
)

// Reopening a port: at first at once, then less and less often.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// port keeps one source open: it opens the device, has it read, and opens it again when it is gone.
type port struct {
	lane   *lane
	opener opener
	cancel context.CancelFunc
	done   chan struct{}
}

// startPort begins to keep the source of a lane open.
func startPort(l *lane, add func(*lane, device) (reader.Handle, error), log *slog.Logger) (*port, error) {
	o, err := newOpener(l.cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &port{lane: l, opener: o, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.keepOpen(ctx, add, log.With("source", l.cfg.ID))
	}()
	return p, nil
}

// stop ends the reading; bytes read are framed, frames are in the log or the backlog when it returns.
func (p *port) stop() {
	p.cancel()
	_ = p.opener.close() // ends an open that waits
	<-p.done
}

func (p *port) keepOpen(ctx context.Context, add func(*lane, device) (reader.Handle, error), log *slog.Logger) {
	retry, told := firstRetry, ""
	for ctx.Err() == nil {
		p.watchForAbsence()
		d, err := p.opener.open(ctx)
		var h reader.Handle
		if err == nil {
			p.lane.opened(d, time.Now().UnixNano())
			if h, err = add(p.lane, d); err != nil {
				p.lane.detach()
				_ = d.close()
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			p.lane.outage(time.Now().UnixNano(), err.Error())
			if err.Error() != told { // once for each cause, not at every try
				told = err.Error()
				log.Warn("cannot open; trying again", "error", err)
			}
			wait := time.NewTimer(retry + rand.N(retry/2))
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
			retry = min(2*retry, lastRetry)
			continue
		}
		retry, told = firstRetry, ""
		log.Info("open", "device", d.name())
		p.lane.attach(h)
		p.read(ctx, h, log)
		p.lane.detach()
		if err := d.close(); err != nil && !os.IsNotExist(err) {
			log.Warn("close", "error", err)
		}
	}
}

// watchForAbsence opens an outage right away where the opener waits for the other side.
func (p *port) watchForAbsence() {
	if _, waits := p.opener.(*listener); waits {
		p.lane.outage(time.Now().UnixNano(), "not connected")
	}
}

// read waits until the reading has ended.
func (p *port) read(ctx context.Context, h reader.Handle, log *slog.Logger) {
	select {
	case err := <-p.lane.closed:
		log.Warn("gone; opening it again", "cause", err)
		return
	case <-ctx.Done():
	case <-p.opener.replaced():
		log.Info("a newer connection takes over")
	}
	h.Remove()
	<-p.lane.closed
}
