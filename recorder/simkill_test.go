package recorder

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing/synctest"
	"time"
)

// Processes of the scenarios that end at any moment: between two operations on the log or on the
// sheets, also while they begin. What a dead one still does reaches nothing.

// start starts a recorder, as a supervisor does: again and again. Some processes are killed while
// they begin, or right behind that.
func (s *stage) start() {
	for {
		var end *doom
		if s.fate.IntN(4) == 0 {
			end = s.doomed(s.fate, s.fate.IntN(2) == 0, 12)
		}
		s.begin()
		if end == nil {
			return
		}
		time.Sleep(pick(s.fate, 0, 0, 0, 100*time.Millisecond))
		if end.spare(); !s.k.isDead(s.life) {
			return
		}
		s.bury()
		time.Sleep(time.Duration(1 + s.fate.IntN(int(20*time.Millisecond)))) // a start is known by its nanosecond
	}
}

// begin begins a process.
func (s *stage) begin() {
	s.starts++
	for range 40 {
		s.life = s.outside()
		r, err := Start(s.config(), slog.New(slog.NewTextHandler(s.quiet, nil)))
		if s.k.isDead(s.life) {
			s.early++
		}
		if err == nil {
			s.r = r
			return
		}
		fmt.Fprintln(s.quiet, "start:", err)
		if s.failing() {
			s.mend()
			continue
		}
		time.Sleep(100 * time.Millisecond)
	}
	panic(fmt.Sprintf("seed %d: the recorder does not start; %v\n%s", s.seed, s.did, s.quiet.String()))
}

// doom is the end of a process that is to come.
type doom struct {
	of   *diskTrouble
	dead chan struct{}
}

// doomed has the process that runs, or begins next, killed before one of its next operations on the
// log or the sheets: n at most.
func (s *stage) doomed(rng *rand.Rand, power bool, n int) *doom {
	d := &doom{s.bad, make(chan struct{})}
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	d.of.killAt = d.of.ops + 1 + rng.IntN(n)
	d.of.kill = func() { s.die(power); close(d.dead) }
	return d
}

// spare takes that back, unless it is too late.
func (d *doom) spare() (lives bool) {
	d.of.mu.Lock()
	lives = d.of.killAt != 0
	d.of.killAt = 0
	d.of.mu.Unlock()
	if !lives {
		<-d.dead
	}
	return lives
}

// kill ends the process, and starts another.
func (s *stage) kill(power bool) {
	if s.rng.IntN(2) == 0 {
		synctest.Wait()
		s.die(power)
	} else {
		end := s.doomed(s.rng, power, 30)
		select {
		case <-end.dead:
		case <-time.After(time.Second):
			if end.spare() {
				s.die(power)
			}
		}
	}
	s.bury()
	time.Sleep(time.Duration(s.rng.IntN(300)) * time.Millisecond)
	s.start()
}

// bury has what is left of a dead process come to its end.
func (s *stage) bury() {
	zombie, ended := s.r, make(chan struct{})
	go func() {
		defer close(ended)
		s.within(stopsWithin(), "the end of one that was killed", func() { _, _ = zombie.Stop("killed") })
	}()
	s.rest = append(s.rest, func() { <-ended })
}

// writeSheet writes a sheet, or a line of the history, into a folder.
func (s *stage) writeSheet(dir string, write func() error) error {
	s.saving.Lock()
	bad := s.bad
	isDead := dir != s.dir
	s.saving.Unlock()
	if !isDead {
		bad.before()
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	was, _ := os.Stat(filepath.Join(dir, "sheet.json"))
	err := write()
	if is, _ := os.Stat(filepath.Join(dir, "sheet.json")); dir == s.dir && is != nil &&
		(was == nil || !os.SameFile(was, is)) {
		s.saved = [2]time.Time{s.saved[1], time.Now()}
	}
	return err
}

// die keeps what a process leaves that ends now.
func (s *stage) die(power bool) {
	s.saving.Lock()
	defer s.saving.Unlock()
	var all []*endpoint
	for _, f := range s.feeders {
		all = append(all, f.e, f.e.listensAt())
	}
	life := s.k.life.n
	s.k.kill(all)
	k := killed{life: life, at: time.Now(), from: time.Now().Add(-100 * time.Millisecond)}
	if s.failing() || time.Since(s.calmed) < 2*time.Second {
		k.from = s.troubled.Add(-100 * time.Millisecond)
	}
	if power && s.log.Sync == "interval" {
		k.from = k.from.Add(-s.log.Interval)
	}
	if power && s.log.Sync == "never" {
		k.from, k.all = s.began.Add(-time.Second), true
	}
	rng := rand.New(rand.NewPCG(s.seed, 400+uint64(len(s.kills)))) // not s.rng: any goroutine may die
	if k.torn = *scenarioTorn && rng.IntN(3) == 0; k.torn {
		k.torn = tearSheet(s.dir, rng)
	}
	if k.torn {
		k.saved = s.saved[0].Add(-200 * time.Millisecond)
	}
	s.kills = append(s.kills, k)
	fmt.Fprintf(s.quiet, "killed at %v, dark from %v\n", k.at.Sub(s.began), k.from.Sub(s.began))
	old, bad := s.disk, s.bad
	if s.disk = old.Copy(); power {
		s.disk = old.Crash(s.seed + uint64(len(s.kills))<<32) // not from s.rng: any goroutine may die
	}
	old.SetInject(nil)
	old.SetFree(-1)
	s.bad = &diskTrouble{}
	bad.slow(0)
	if s.failing() {
		s.calmed = time.Now()
	}
	s.dirs++
	to := filepath.Join(filepath.Dir(s.dir), strconv.Itoa(s.dirs))
	if err := copyFiles(to, s.dir); err != nil {
		s.complain("copy: %v", err)
	}
	s.dir = to
}

// tearSheet leaves half of the newest sheet, so that the one before it serves, if there is one.
func tearSheet(dir string, rng *rand.Rand) bool {
	path := filepath.Join(dir, "sheet.json")
	if _, err := os.Stat(path + ".before"); err != nil {
		return false
	}
	st, err := os.Stat(path)
	return err == nil && os.Truncate(path, rng.Int64N(st.Size())) == nil
}
