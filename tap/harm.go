package tap

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
)

// look says what the driver, the kernel or the recorder has lost since it looked last.
func (s *session) look(sheet ledger.Sheet) {
	if len(sheet.Ports) == 0 {
		return
	}
	now := sheet.Ports[0]
	for _, h := range harms(s.before, now, s.tap.Source.UDP != nil) {
		s.lost = true
		s.q.note(time.Now().UnixNano(), true, h)
	}
	s.before = now
}

// harms lists what has grown between two sheets of a port.
func harms(before, now ledger.Port, datagrams bool) (all []string) {
	grown := func(a, b uint64, format string) {
		if b > a {
			all = append(all, fmt.Sprintf(format, b-a))
		}
	}
	kernel := func(field func(*ledger.Kernel) *uint64, format string) {
		of := func(k *ledger.Kernel) uint64 {
			if k == nil || field(k) == nil {
				return 0
			}
			return *field(k)
		}
		grown(of(before.Kernel), of(now.Kernel), format)
	}
	buffer := "%d bytes lost: the tty's buffer ran over"
	if datagrams {
		buffer = "%d datagrams lost: the socket's buffer ran over"
	}
	kernel(func(k *ledger.Kernel) *uint64 { return k.Overrun }, "%d characters lost: the UART ran over")
	kernel(func(k *ledger.Kernel) *uint64 { return k.BufferOverrun }, buffer)
	kernel(func(k *ledger.Kernel) *uint64 { return k.Framing }, "%d framing errors: is the rate right (-b)?")
	kernel(func(k *ledger.Kernel) *uint64 { return k.Parity }, "%d parity errors: is the mode right (--mode)?")
	for _, cause := range slices.Sorted(maps.Keys(now.Frames.Dropped)) {
		grown(before.Frames.Dropped[cause], now.Frames.Dropped[cause], "%d frames not kept: "+words(cause))
	}
	for _, cause := range slices.Sorted(maps.Keys(now.Unread)) {
		grown(before.Unread[cause], now.Unread[cause], "%d bytes thrown away unread: "+words(cause))
	}
	return all
}

func words(cause string) string { return strings.ReplaceAll(cause, "_", " ") }

// journal shows what the recorder warns of among the frames, but for what it says of the port,
// which the tap sees itself.
type journal struct {
	q     *queue
	quiet bool
	with  []slog.Attr
}

func newJournal(q *queue) *slog.Logger { return slog.New(&journal{q: q}) }

// Enabled implements [slog.Handler].
func (j *journal) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && !j.quiet
}

// Handle implements [slog.Handler].
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	add := func(a slog.Attr) bool {
		text += fmt.Sprintf(", %s %v", a.Key, a.Value)
		return true
	}
	for _, a := range j.with {
		add(a)
	}
	r.Attrs(add)
	j.q.note(r.Time.UnixNano(), r.Level >= slog.LevelError, text)
	return nil
}

// WithAttrs implements [slog.Handler].
func (j *journal) WithAttrs(as []slog.Attr) slog.Handler {
	n := *j
	n.with = slices.Concat(j.with, as)
	n.quiet = j.quiet || slices.ContainsFunc(as, func(a slog.Attr) bool { return a.Key == "source" })
	return &n
}

// WithGroup implements [slog.Handler].
func (j *journal) WithGroup(string) slog.Handler { return j }
