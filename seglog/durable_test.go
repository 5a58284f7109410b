package seglog

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// What a full disk took is known behind a kill, with retention by size beside it, also where the
// kill comes when the log has said so and the segment is still there.
func TestKillForgetsNothingThatAFullDiskTook(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncAlways)
	cfg.OnFull, cfg.KeepBytes = DropOldest, 1<<30
	fillUntil := func(l *Log, until func() bool) {
		t.Helper()
		for next := l.Position().Next; !until(); next++ {
			if _, err := l.Append(0, 1, payload(next)); err != nil {
				t.Error(err)
				return
			}
		}
	}
	l := open(t, cfg)
	fillUntil(l, func() bool { return l.Position().Next > 1500 })
	d.SetFree(0)
	fillUntil(l, func() bool { return l.Position().Evicted > 0 })
	last := l.Position()
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if op == fault.OpRemove && strings.HasSuffix(name, indexSuffix) {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		fillUntil(l, func() bool { return l.Position().Evicted > last.Evicted })
	}()
	testenv.Until(t, time.Minute, "the log has said that a segment goes", func() bool {
		return l.Position().EverGone > last.EverGone
	})
	killed := d.Copy()
	d.SetInject(nil)
	<-filled
	closeLog(t, l)
	cfg.FS = faulty{killed}
	next := open(t, cfg)
	at := next.Position()
	if at.First != last.First || at.EverGone <= last.EverGone || at.Evicted > 0 {
		t.Fatalf("behind the kill the log is at %+v; before the last segment went it was at %+v", at, last)
	}
	killed.SetFree(0)
	fillUntil(next, func() bool { return next.Position().Evicted > 0 })
	if at = next.Position(); at.EverGone != at.First-1 {
		t.Errorf("%d records were taken in the life of the log, and it begins with %d", at.EverGone, at.First)
	}
	closeLog(t, next)
}
