package board

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/seglog"
)

// recording is a recorder of one line, in a folder of its own.
type recording struct {
	dir string
	r   *recorder.Recorder
}

// heard is what a board has said, by the recorder's log and books.
type heard struct {
	lines    []line
	sum      [sha256.Size]byte // of all that it said up to its last line
	records  uint64            // lines in the log, those of the kernel, too
	port     ledger.Port
	balanced bool
	lastText string // no line of ours, and the last: what went wrong, mostly
}

// longestLine is in bytes.
const longestLine = 16 << 10

// look is the time between two looks at what is recorded.
const look = 20 * time.Millisecond

// record starts a recorder of a terminal, and waits until it reads that.
func record(ctx context.Context, in, terminal string) (*recording, error) {
	dir, err := os.MkdirTemp(in, "board-")
	if err != nil {
		return nil, err
	}
	cfg := config.Config{
		Log: config.Log{Dir: filepath.Join(dir, "data"), Segment: 1 << 20}, API: config.API{Listen: "off"},
		Sources: []config.Source{{
			ID: "board", Serial: &config.Serial{Port: terminal}, Frame: config.Frame{Kind: "line", Max: longestLine},
		}},
	}
	g := &recording{dir: dir}
	if g.r, err = recorder.Start(cfg, slog.New(slog.DiscardHandler)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for {
		p := g.r.Sheet().Ports[0]
		switch {
		case p.State == ledger.StateOpen:
			return g, nil
		case p.Why != "":
			return nil, errors.Join(fmt.Errorf("%s: %s", terminal, p.Why), g.close())
		}
		if err := pause(ctx); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
}

// pause waits until it is time for another look.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(look):
		return nil
	}
}

// close ends a recording of which nothing is wanted any more.
func (g *recording) close() error {
	var err error
	if g.r != nil {
		_, err = g.r.Stop("the board is not listened to any more")
	}
	return errors.Join(err, os.RemoveAll(g.dir))
}

// listen waits for the board's last line, and returns what it has said, once the recorder has ended
// and its books are closed.
func (g *recording) listen(ctx context.Context) (h heard, err error) {
	hash := sha256.New()
	err = g.each(func(data []byte) (bool, error) {
		_, _ = hash.Write(data)
		l, ok := h.take(data)
		return ok && l.What == last, nil
	}, func() error { return pause(ctx) })
	sheet, stopErr := g.r.Stop("the board has said its last line")
	g.r = nil
	if err := errors.Join(err, stopErr); err != nil {
		return h, err
	}
	h.port, h.balanced = sheet.Ports[0], sheet.Balanced
	hash.Sum(h.sum[:0])
	atEnd := errors.New("the end of the log")
	err = g.each(func([]byte) (bool, error) { h.records++; return false, nil }, func() error { return atEnd })
	if errors.Is(err, atEnd) {
		err = nil
	}
	return h, err
}

// each calls f with every line of the log until it says that it is enough; wait is called where
// there is no more yet.
func (g *recording) each(f func([]byte) (enough bool, err error), wait func() error) error {
	var log *archive.Archive
	for log == nil {
		var err error
		if log, err = archive.Open(filepath.Join(g.dir, "data")); errors.Is(err, archive.ErrNone) {
			err = wait()
		}
		if err != nil {
			return err
		}
	}
	records := log.Records(archive.Cursor{OnGap: func(gap *seglog.GapError) error { return gap }})
	defer records.Close()
	for {
		r, ok, err := records.Look()
		switch {
		case err == io.EOF:
			if err := wait(); err != nil {
				return err
			}
		case err != nil:
			return err
		case ok:
			if enough, err := f(r.Data); enough || err != nil {
				return err
			}
		}
	}
}

// ourError begins what this program says is wrong: that tells more than what a kernel says when it
// has lost its first process.
const ourError = "tallywheel: "

// take reads a line, if it is one of ours; a kernel speaks on the same terminal.
func (h *heard) take(data []byte) (l line, ours bool) {
	text := bytes.TrimSpace(data)
	if at := bytes.Index(text, []byte(`{"board":`)); at >= 0 { // a prompt may stand before it
		ours = json.Unmarshal(text[at:], &l) == nil
	}
	if !ours {
		if len(text) > 0 && !strings.HasPrefix(h.lastText, ourError) {
			h.lastText = string(text)
		}
		return l, false
	}
	h.lines = append(h.lines, l)
	return l, true
}

// whole says what is missing in what was recorded; "": each line is there, once and in its place,
// and the books say so, too.
func (h *heard) whole() string {
	for i, l := range h.lines {
		if l.Board != i+1 {
			return fmt.Sprintf("line %d came where %d was due", l.Board, i+1)
		}
	}
	f := h.port.Frames
	switch {
	case len(h.lines) == 0 || h.lines[len(h.lines)-1].What != last:
		return "the last line is missing"
	case !h.balanced:
		return fmt.Sprintf("the books do not balance: %v", h.port.Unbalanced)
	case f.OK != h.records || f.Durable != h.records:
		return fmt.Sprintf("the log has %d lines, the books %d, %d of them durable", h.records, f.OK, f.Durable)
	}
	return ""
}
