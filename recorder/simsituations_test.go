package recorder

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/seglog"
)

// situation is something that happens while devices send.
type situation struct {
	name string
	act  func(s *stage)
}

// gentle situations begin no rhythm anew, and hold no frame back.
var gentle = []string{"hush", "clock", "change-other"}

var situations = []situation{
	{"stop", func(s *stage) {
		s.stop("stop")
		time.Sleep(time.Duration(s.rng.IntN(500)) * time.Millisecond)
		s.start()
	}},
	{"kill", func(s *stage) { s.kill(false) }},
	{"power", func(s *stage) { s.kill(true) }},
	{"harm", harm},
	{"change", changeThis},
	{"change-other", changeOther},
	{"hush", hush},
	{"remove", remove},
	{"full", func(s *stage) {
		s.hurt()
		s.disk.SetFree(s.rng.Int64N(1 << 20))
		s.wait(time.Duration(s.rng.IntN(3000)) * time.Millisecond)
		s.mend()
	}},
	{"error", func(s *stage) {
		s.hurt()
		op := pick(s.rng, fault.OpWrite, fault.OpSync, fault.OpSyncDir, fault.OpCreate, fault.OpRename, fault.OpOpen,
			fault.OpRemove)
		err := pick[error](s.rng, syscall.EIO, syscall.ENOSPC, syscall.EMFILE, syscall.EAGAIN, syscall.ENOMEM,
			syscall.ESTALE)
		s.disk.SetInject(failing(rand.New(rand.NewPCG(s.rng.Uint64(), 1)), err, 1+s.rng.IntN(10), op))
		s.wait(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
		s.mend()
	}},
	{"slow", func(s *stage) {
		s.hurt()
		s.bad.slow(time.Duration(20+s.rng.IntN(1500)) * time.Millisecond)
		s.wait(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
		if s.rng.IntN(2) == 0 {
			s.mend()
		}
	}},
	{"clock", func(s *stage) {
		step := time.Duration(s.rng.IntN(7200)-3600) * time.Second
		s.clock.Add(int64(step))
		s.hidden.Add(int64(step))
		s.wait(time.Second)
	}},
	{"storm", func(s *stage) {
		for _, f := range s.feeders {
			f.mu.Lock()
			f.storm = 5 + s.rng.IntN(60)
			f.mu.Unlock()
		}
		s.wait(200 * time.Millisecond)
		s.upset(time.Now(), time.Now().Add(2*time.Second))
	}},
	{"unplug", func(s *stage) {
		for _, f := range s.feeders {
			f.e.unplug(true)
		}
		s.wait(time.Duration(s.rng.IntN(2000)) * time.Millisecond)
		if s.wait(time.Second); !s.failing() {
			s.levelWhileAway()
		}
		for _, f := range s.feeders {
			f.e.unplug(false)
		}
		s.wait(8 * time.Second) // until it is tried again
	}},
}

// unplug takes a line away, or has the device refuse connections; the kernel keeps what has come.
func (e *endpoint) unplug(away bool) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if e.away = away; e.kind == byLine {
		e.line.broken = away
		poke(e.line.news)
	}
}

// change changes sources while they record.
func changeThis(s *stage) {
	for range 1 + s.rng.IntN(3) {
		c := &s.sources[s.rng.IntN(len(s.sources))]
		switch s.rng.IntN(4) {
		case 0:
			setOverflow(s.rng, c)
		case 1:
			setBuffer(s.rng, c)
		case 2:
			c.Quarantine = !c.Quarantine
		case 3:
			switch c.Frame.Kind {
			case "cobs", "slip", "line", "length":
				c.Frame.Max = maxChanged - 1000 + s.rng.IntN(1000)
			case "raw":
				c.Frame.Max = 500 + s.rng.IntN(1000)
			default:
				if c.Serial != nil {
					line := *c.Serial
					line.Baud = pick(s.rng, 9600, 57600, 115200)
					c.Serial = &line
				}
			}
		}
		s.reload()
		s.wait(time.Duration(s.rng.IntN(300)) * time.Millisecond)
	}
}

func changeOther(s *stage) {
	s.others = nil
	for n := range s.rng.IntN(3) {
		s.others = append(s.others, config.Source{
			ID: fmt.Sprintf("other-%d", n), Serial: &config.Serial{Port: fmt.Sprintf("/other-%d-%d", n, s.rng.IntN(3))},
			Frame: config.Frame{Kind: "line"},
		})
	}
	s.reload()
}

func remove(s *stage) {
	at := s.rng.IntN(len(s.sources))
	all := s.sources
	s.sources = append(append([]config.Source(nil), all[:at]...), all[at+1:]...)
	s.reload()
	s.wait(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
	s.sources = all
	s.reload()
}

func (s *stage) reload() {
	s.within(time.Minute, "the reload", func() {
		if err := s.r.Reload(s.config()); err != nil {
			s.complain("reload: %v", err)
		}
	})
	s.supervise()
}

// harm cuts or removes the newest segment while nothing runs.
func harm(s *stage) {
	s.goesOn("before harm")
	s.stop("before harm")
	names, _ := s.disk.List()
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".seg") {
			newest = max(newest, name)
		}
	}
	before := s.records()
	if size := int64(len(s.disk.Bytes(newest))); s.rng.IntN(2) == 0 {
		// without its header the log has to be repaired first
		_ = s.disk.Cut(newest, min(size, 4096+s.rng.Int64N(size)))
	} else {
		_ = s.disk.Remove(newest)
	}
	s.kills = append(s.kills, killed{life: s.k.life.n, at: time.Now(), from: s.began.Add(-time.Second), all: true})
	s.k.mu.Lock()
	s.k.life = &life{n: s.k.life.n + 1}
	s.k.mu.Unlock()
	s.calm(true)
	s.start()
	s.harmed += before - s.records() // recovery keeps what it finds in a batch that was cut
	s.calm(false)
}

// calm has no device send, or all of them go on.
func (s *stage) calm(still bool) {
	for _, f := range s.feeders {
		f.calm(still)
	}
}

// records is how many records the log has.
func (s *stage) records() (n uint64) {
	r := seglog.NewReader(simDisk{s.disk.Copy(), &diskTrouble{}}, 0)
	defer r.Close()
	for {
		var gap *seglog.GapError
		switch _, err := r.Next(); {
		case err == nil:
			n++
		case !errors.As(err, &gap):
			return n
		}
	}
}
