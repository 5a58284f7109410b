package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/seglog"
)

// resetEvent tells a client that its id does not hold.
type resetEvent struct {
	Reason string `json:"reason"`
	Asked  string `json:"asked"` // the id or number that does not hold, as it was given
	reset
}

// damageEvent tells a client that what follows cannot be read.
type damageEvent struct {
	From  uint64 `json:"from"`  // the first record that cannot
	Error string `json:"error"` // why, where, and what to do
}

// damageLook is how often a stream that has met damage looks whether it can go on.
const damageLook = time.Second

// stream sends records as server-sent events as they are stored. A client that reads slowly falls
// behind in the log; it never holds up the recorder. The id of an event is the mark of its record.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	a, err := s.ask(r, streamParams)
	if id := r.Header.Get("Last-Event-ID"); err == nil && id != "" { // a client that connects again
		var m archive.Mark
		if m, err = archive.ParseMark(id); err != nil {
			err = fmt.Errorf("Last-Event-ID %w", err)
		}
		a.after, a.named = &m, id
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	in := s.rec.Archive()
	if a.after == nil && a.query.Since == 0 { // from now on
		a.after = &archive.Mark{Seq: s.rec.Position().Stored}
	}
	no, err := begin(in, &a)
	var start archive.Mark
	if err == nil {
		start, err = in.Mark(max(a.query.From, 1) - 1)
	}
	var e *eventWriter
	c := in.Records(archive.Cursor{Query: a.query, OnGap: func(gap *seglog.GapError) error {
		return e.send("gone", "", map[string]uint64{"from": gap.From, "to": gap.To})
	}})
	defer c.Close()
	var before []seglog.GapError
	if err == nil && a.query.Since > 0 {
		before, err = in.Before(a.query)
	}
	if err == nil {
		err = c.Begin()
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	e = newEvents(w)
	e.at = func() archive.Mark {
		if m := c.Mark(); m.Seq > start.Seq {
			return m
		}
		return start
	}
	if no != nil {
		err = e.send("reset", start.String(), resetEvent{no.Reason, a.named, resetTo(start, no)})
	} else {
		err = e.id()
	}
	for i := 0; i < len(before) && err == nil; i++ {
		err = c.OnGap(&before[i])
	}
	s.follow(r.Context(), e, c, err)
}

// follow sends what a cursor finds until the client leaves, or cannot be written to. At damage it
// says so, once, and stays: a client whose stream ends would come back at once, and for ever.
func (s *Server) follow(ctx context.Context, e *eventWriter, c *archive.Cursor, err error) {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for err == nil && ctx.Err() == nil {
		rec, ok, lookErr := c.Look()
		switch {
		case lookErr == io.EOF:
			if err = e.rest(); err == nil {
				err = wait(ctx, poll.C)
			}
		case lookErr != nil:
			err = e.damage(ctx, c, lookErr)
		case ok:
			e.told = ""
			err = e.send("record", c.Mark().String(), rec)
		}
		if err == nil {
			err = e.alive()
		}
	}
}

// wait waits for the next tick, or the end of the context.
func wait(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-tick:
		return nil
	}
}

// events sends the status once a second.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	e := newEvents(w)
	for {
		next := s.rec.NextSample()
		text, err := s.newest.status(next, s.now)
		if err != nil || e.write("status", "", text) != nil || e.rest() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
	}
}

// newest is the status of this second, made once for all who follow it.
type newest struct {
	mu   sync.Mutex
	till <-chan struct{} // closed when it is out of date
	text []byte
}

// status is good until next is closed.
func (n *newest) status(next <-chan struct{}, now func() Status) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.till == next {
		return n.text, nil
	}
	text, err := json.Marshal(now())
	if err != nil {
		return nil, err
	}
	n.till, n.text = next, text
	return text, nil
}

// eventWriter writes server-sent events (WHATWG HTML, section 9.2).
type eventWriter struct {
	w    *patient
	at   func() archive.Mark // nil: these events have no ids
	held bool                // something was written and not sent
	last time.Time           // when something was sent
	told string              // the damage that was told; "": none since the last record
}

func newEvents(w http.ResponseWriter) *eventWriter {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy is to hand on each event as it comes
	w.WriteHeader(http.StatusOK)
	return &eventWriter{w: patiently(w), held: true, last: time.Now()} // the head goes out at once
}

func (e *eventWriter) send(event, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.write(event, id, b)
}

func (e *eventWriter) write(event, id string, data []byte) error {
	e.held = true
	if id != "" {
		if _, err := fmt.Fprintf(e.w, "id: %s\n", id); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", event, data)
	return err
}

// damage tells once that the cursor cannot read on, and why. It has it try again after a while: a
// segment may be put back.
func (e *eventWriter) damage(ctx context.Context, c *archive.Cursor, why error) (err error) {
	if at := c.Mark(); why.Error() != e.told {
		e.told = why.Error()
		err = e.send("damage", at.String(), damageEvent{at.Seq + 1, e.told})
	}
	if err == nil {
		err = e.rest()
	}
	if err == nil {
		err = wait(ctx, time.After(damageLook))
	}
	c.Again()
	return err
}

// rest sends what was written, if anything was.
func (e *eventWriter) rest() error {
	if !e.held {
		return nil
	}
	e.held, e.last = false, time.Now()
	return e.w.flush()
}

// alive says now and then that the connection lives, where there is nothing else to be said: also
// while many records are looked at of which none is to be sent.
func (e *eventWriter) alive() error {
	if time.Since(e.last) < keepAlivePeriod {
		return nil
	}
	e.held = true
	if _, err := io.WriteString(e.w, ": alive\n"); err != nil {
		return err
	}
	if err := e.id(); err != nil {
		return err
	}
	return e.rest()
}

// id sends the mark of where the stream is, without an event: a client that connects again need not
// have everything looked at anew.
func (e *eventWriter) id() error {
	e.held = true
	text := "\n"
	if e.at != nil {
		text = fmt.Sprintf("id: %v\n\n", e.at())
	}
	_, err := io.WriteString(e.w, text)
	return err
}
