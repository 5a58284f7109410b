package recorder

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// ages lets so much time pass for the rhythm of a lane.
func ages(l *lane, d time.Duration) {
	was := l.in.steady
	l.in.steady = func() time.Duration { return was() + d }
}

// later lets so much time pass for the rhythm of a source.
func later(g *Recorder, d time.Duration) {
	l := g.sources()[0].lane
	l.mu.Lock()
	defer l.mu.Unlock()
	ages(l, d)
}

// A source whose frames have no numbers misses those that do not come in time; a silence is one,
// and no flood of missing frames; an opening begins anew.
func TestExpect(t *testing.T) {
	for _, strategy := range []string{"ring", config.Pipeline} {
		a := lines("a", "")
		a.Expect = &config.Expect{Interval: time.Hour}
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, a)
		c := dial(t, address(g, "a"))
		sent := uint64(0)
		send := func(n int) ledger.Port {
			for range n {
				write(t, c, []byte("a line\n"))
				sent++
				stored(t, g, "a", sent)
			}
			return portOf(g, "a")
		}
		send(1)
		later(g, 3*time.Hour)
		if p := send(1); p.Frames.MissingByTime != 2 {
			t.Errorf("%s: %+v; want 2 missing by time", strategy, p.Frames)
		}
		if v := g.Sheet().Verdict; v.Level != ledger.Bad || v.LostWire.Frames != 2 || v.LastLoss == 0 {
			t.Errorf("%s: %+v", strategy, v)
		}
		later(g, 70*time.Minute)
		if p := send(1); p.Frames.MissingByTime != 2 || p.SilentSince != 0 {
			t.Errorf("%s: %+v; want no more, for it was in time", strategy, p.Frames)
		}
		later(g, 1000*time.Hour)
		if p := portOf(g, "a"); p.SilentSince == 0 || p.Frames.MissingByTime != 2 {
			t.Errorf("%s: %+v; want it silent, and nothing more missing", strategy, p)
		}
		if p := send(1); p.SilentSince != 0 || p.Silences != 1 || p.Frames.MissingByTime != 2 {
			t.Errorf("%s: %+v; want one silence", strategy, p)
		}
		c.Close()
		testenv.Until(t, 10*time.Second, "the end is noticed",
			func() bool { return portOf(g, "a").State == ledger.StateWaiting })
		later(g, 5*time.Hour)
		c = dial(t, address(g, "a"))
		if p := send(1); p.Frames.MissingByTime != 2 || p.Silences != 1 {
			t.Errorf("%s: %+v after it was opened anew", strategy, p)
		}
		c.Close()
		stop(t, g)
	}
}

// Frames that a decoder holds back behind a false length are no silence, nor missing: their bytes
// came. Noise without end is one.
func TestFramesHeldBackAreNoSilence(t *testing.T) {
	for _, strategy := range []string{"ring", config.Pipeline} {
		cfg := lines("a", "")
		cfg.Frame = config.Frame{Kind: "length", Check: "modbus", Max: 512}
		cfg.Expect, cfg.SilentAfter = &config.Expect{Interval: time.Hour}, 3*time.Hour
		l, err := newLane(cfg, &stubLog{}, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		var held []byte
		hears := func(after time.Duration, b []byte) ledger.Port {
			ages(l, after)
			held = append(held, b...)
			if strategy == "ring" {
				done, _ := l.Arrived(held, len(b), 1)
				held = held[done:]
			} else {
				c := &chunk{data: b, at: 1}
				l.took(len(b))
				held = held[l.in.dec.Decode(held, c):]
				l.classified(c)
				l.store(c)
			}
			return l.sheet()
		}
		content := make([]byte, 98)
		one := append([]byte{0, 100}, sealed(content)...)
		hears(0, one)
		damaged := append([]byte{0, 100, 1, 144}, one[4:]...) // 01 90: 400 bytes follow
		for range 4 {
			if p := hears(time.Hour, damaged); p.SilentSince != 0 {
				t.Fatalf("%s: it is silent, and sends: %+v", strategy, p)
			}
			damaged = one
		}
		if p := hears(time.Hour, one); p.Frames.OK != 5 || p.Silences != 0 || p.Frames.MissingByTime != 0 ||
			p.SilentSince != 0 {
			t.Errorf("%s: %+v; want 5 valid frames, no silence, none missing", strategy, p)
		}

		hears(time.Hour, append([]byte{1, 144}, content...)) // half a frame, and nothing more
		ages(l, 4*time.Hour)
		if p := l.sheet(); p.SilentSince == 0 {
			t.Errorf("%s: half a frame keeps it from being silent", strategy)
		}
		if p := hears(0, content); p.SilentSince == 0 || p.Silences != 0 {
			t.Errorf("%s: half a frame ends a silence: %+v", strategy, p)
		}
		if p := hears(0, make([]byte, 400)); p.SilentSince != 0 || p.Silences != 1 || p.Frames.Corrupt != 2 {
			t.Errorf("%s: %+v; want one silence, which a damaged frame ended", strategy, p)
		}

		noise := []byte{1, 144, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
		read, silent := 0, false
		for ; !silent && read < 3000; read += len(noise) {
			silent = hears(time.Hour, noise).SilentSince != 0
		}
		if least := 2 * 514; !silent || read < least {
			t.Errorf("%s: %d bytes of noise: silent %v; want it so behind %d", strategy, read, silent, least)
		}
	}
}
