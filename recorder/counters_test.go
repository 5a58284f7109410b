package recorder

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial"
)

// fakeSerial is a port whose driver counts, and says nothing once its adapter is unplugged.
type fakeSerial struct {
	now  serial.Counters
	gone bool
}

func (f *fakeSerial) FD() int      { return -1 }
func (f *fakeSerial) Close() error { return nil }
func (f *fakeSerial) Counters() (serial.Counters, error) {
	if f.gone {
		return serial.Counters{}, syscall.EIO
	}
	return f.now, nil
}

// plugged is the device of a port that has been opened.
func plugged(f *fakeSerial) *serialDevice {
	return &serialDevice{port: f, path: "x", counts: true, told: f.now}
}

// kernelCounts is what the drivers have counted, as the sheet says it.
func kernelCounts(l *lane) string {
	k := l.sheet().Kernel
	return fmt.Sprint(*k.Overrun, *k.BufferOverrun, *k.Framing, *k.Parity, *k.Break)
}

// What the driver has counted stays counted when its adapter is unplugged, which answers nothing
// from then on, and no loss is taken back; what comes after it is back adds up, from whatever its
// driver begins with. A device that stays open counts from 0 for another lane.
func TestCountsOfAnAdapterThatIsUnplugged(t *testing.T) {
	l, _ := testLane(t, config.OverflowBlock)
	var w lossWatch
	want := func(when, counts, losses string) {
		t.Helper()
		if got := kernelCounts(l); got != counts {
			t.Errorf("%s: %s, want %s", when, got, counts)
		}
		s := l.sheet()
		s.LastLoss = 0
		w.look(ledger.Sheet{At: 1e9, Ports: []ledger.Port{s}})
		if got := fmt.Sprint(told(&w)); got != losses {
			t.Errorf("%s: the losses are %s, want %s", when, got, losses)
		}
	}
	first := &fakeSerial{now: serial.Counters{Overrun: 40, Framing: 9}}
	l.opened(plugged(first), 1)
	want("opened", "0 0 0 0 0", "[]")
	first.now = serial.Counters{Overrun: 42, BufferOverrun: 3, Framing: 10, Parity: 5, Break: 6}
	want("counted", "2 3 1 5 6", "[a here 5 byte over-run below us 1-1]")
	first.gone = true
	want("unplugged", "2 3 1 5 6", "[a here 5 byte over-run below us 1-1]")
	l.detach()
	want("closed", "2 3 1 5 6", "[a here 5 byte over-run below us 1-1]")
	second := &fakeSerial{now: serial.Counters{Overrun: 1}}
	d := plugged(second)
	l.opened(d, 2)
	want("back", "2 3 1 5 6", "[a here 5 byte over-run below us 1-1]")
	second.now = serial.Counters{Overrun: 5, Break: 1}
	want("counted again", "6 3 1 5 7", "[a here 9 byte over-run below us 1-1]")
	second.now.Overrun++
	l.detach() // nobody has asked since
	want("closed again", "7 3 1 5 7", "[a here 10 byte over-run below us 1-1]")
	another, _ := testLane(t, config.OverflowBlock)
	d.recount()
	another.opened(d, 3)
	second.now.Parity = 8
	if got := kernelCounts(another); got != "0 0 0 8 0" {
		t.Errorf("another lane has %s, want what was counted since", got)
	}
}

// The driver's counters have 32 bits.
func TestCountersOfADriverOverflow(t *testing.T) {
	l, _ := testLane(t, config.OverflowBlock)
	f := &fakeSerial{now: serial.Counters{Overrun: 1<<32 - 2, Parity: 1<<32 - 1}}
	l.opened(plugged(f), 1)
	f.now = serial.Counters{Overrun: 3}
	if got := kernelCounts(l); got != "5 0 0 1 0" {
		t.Errorf("across 2^32: %s, want 5 0 0 1 0", got)
	}
	f.now.Overrun = 4
	if got := kernelCounts(l); got != "6 0 0 1 0" {
		t.Errorf("behind 2^32: %s, want 6 0 0 1 0", got)
	}
}
