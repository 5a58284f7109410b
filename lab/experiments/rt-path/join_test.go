package rtpath

import (
	"testing"

	"github.com/tallywheel/tallywheel/lab/suite"
	"github.com/tallywheel/tallywheel/probe"
)

// TestJoin: each sample has the kernel's path that ends with it; one whose path was not noted has
// none, and a switch that no sample followed belongs to none.
func TestJoin(t *testing.T) {
	const ms = 1_000_000
	paths := []probe.Path{
		{Woken: ms / 2, Runs: ms/2 + 10}, // before the first
		{Interrupted: ms + 60, Expired: ms + 100, Woken: ms + 300, Runs: ms + 700},
		{Interrupted: 3*ms + 150, Expired: 3*ms + 200, Woken: 3*ms + 500, Runs: 3*ms + 900},
		{Interrupted: 3*ms + 150, Expired: 3*ms + 200, Woken: 3*ms + 400_000, Runs: 3*ms + 500_000}, // another sleep
	}
	samples := []suite.Sample{
		{Due: ms, Woke: ms + 1000},
		{Due: 2 * ms, Woke: 2*ms + 1000},
		{Due: 3 * ms, Woke: 3*ms + 1900},
	}
	if s := join(samples, paths, true); s != (stages{n: 2, timer: 210, wake: 590, run: 800, user: 1300, whole: 2900}) {
		t.Errorf("%+v", s)
	}
	if s := join(samples, paths, false); s != (stages{n: 2, wake: 800, run: 800, user: 1300, whole: 2900}) {
		t.Errorf("without a timer: %+v", s)
	}
	samples[0].Woke -= 400 // before the kernel had it run, by another clock
	if s := join(samples[:1], paths, true); s.n != 1 || s.worst != 100 {
		t.Errorf("out of order: %+v", s)
	}
	early := []probe.Path{{Interrupted: ms - 40, Expired: ms + 100, Woken: ms + 300, Runs: ms + 350}}
	if s := join(samples[:1], early, true); s != (stages{n: 1, wake: 300, run: 50, user: 250, whole: 600}) {
		t.Errorf("in the interrupt of another timer: %+v", s)
	}
	early[0].Expired = ms - 30
	if s := join(samples[:1], early, true); s.n != 1 || s.worst != 30 {
		t.Errorf("handled before its time: %+v", s)
	}
	early[0].Interrupted = 0
	if s := join(samples[:1], early, true); s.n != 0 {
		t.Errorf("in no interrupt: %+v", s)
	}
	if s := join(samples, nil, true); s.n != 0 {
		t.Errorf("of no paths: %+v", s)
	}
}
