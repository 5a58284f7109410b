package recorder

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/reader"
)

// notes writes down what it is told, runs of bytes as one.
type notes struct {
	all   []string
	bytes int
}

func (n *notes) Watch(e Event) {
	if e.Kind == SawBytes {
		n.bytes += len(e.Data)
		return
	}
	n.flush()
	switch e.Kind {
	case SawFrame:
		n.all = append(n.all, fmt.Sprintf("%d frame %d %+v", e.At, e.Frame.Seq, e.Fate))
	case SawDamage:
		n.all = append(n.all, fmt.Sprintf("%d damage, part %d", e.At, e.Part))
	case PortGone:
		n.all = append(n.all, fmt.Sprintf("%d gone: %v", e.At, e.Err))
	}
}

func (n *notes) flush() {
	if n.bytes > 0 {
		n.all = append(n.all, fmt.Sprintf("%d bytes", n.bytes))
		n.bytes = 0
	}
}

// A watcher hears of each byte once, in order, and of what the numbers say.
func TestWatcherIsToldOfEachByte(t *testing.T) {
	l, _ := testLane(t, config.OverflowBlock)
	n := &notes{}
	l.in.watcher = n
	show := func(at int64, b []byte) {
		if done, _ := l.Arrived(b, len(b), at); done != len(b) {
			t.Fatalf("%d of %d bytes are classified", done, len(b))
		}
	}
	damaged := frames(8, 1)
	damaged[50] ^= 1
	show(1, frames(5, 1))
	show(2, frames(7, 1))                                 // 6 is missing
	show(3, frames(6, 1))                                 // and comes late
	show(4, frames(6, 1))                                 // twice
	show(5, append(damaged, frames(9, 1)...))             // 8 is damaged
	show(6, frames(3, 1))                                 // older than the first one seen: 4 is missing
	l.Arrived(frames(10, 1)[:100], 100, 7)                // cut
	l.Closed(frames(10, 1)[:100], 8, io.ErrUnexpectedEOF) // … as the device is gone
	<-l.closed
	l.Closed(frames(10, 1)[:tally128.Size-1], 9, reader.ErrRemoved) // … or nobody reads any more
	n.flush()
	want := []string{
		"1 frame 5 {Repeated:false Late:false Missing:0 Corrupt:0 From:0 Unanswered:false AnsweredLate:false}",
		"2 frame 7 {Repeated:false Late:false Missing:1 Corrupt:0 From:6 Unanswered:false AnsweredLate:false}",
		"3 frame 6 {Repeated:false Late:true Missing:0 Corrupt:0 From:0 Unanswered:false AnsweredLate:false}",
		"4 frame 6 {Repeated:true Late:false Missing:0 Corrupt:0 From:0 Unanswered:false AnsweredLate:false}",
		"5 damage, part 0", "128 bytes",
		"5 frame 9 {Repeated:false Late:false Missing:1 Corrupt:1 From:8 Unanswered:false AnsweredLate:false}",
		"6 frame 3 {Repeated:false Late:false Missing:1 Corrupt:0 From:4 Unanswered:false AnsweredLate:false}",
		fmt.Sprintf("8 damage, part %d", AtGone), "100 bytes", "8 gone: " + io.ErrUnexpectedEOF.Error(),
		fmt.Sprintf("9 damage, part %d", AtStop), "127 bytes",
	}
	if !slices.Equal(n.all, want) {
		t.Errorf("the watcher was told\n%q\nwant\n%q", n.all, want)
	}
}

// What a watcher hears of a port: why it cannot be opened, at each try.
func TestWatcherIsToldThatAPortIsAbsent(t *testing.T) {
	l, _ := testLane(t, config.OverflowBlock)
	why := errors.New("no such port")
	var heard []error
	l.in.watcher = watchFunc(func(e Event) { heard = append(heard, e.Err) })
	l.absent(why)
	l.absent(why)
	if !slices.Equal(heard, []error{why, why}) {
		t.Errorf("heard %v", heard)
	}
}

type watchFunc func(Event)

func (f watchFunc) Watch(e Event) { f(e) }
