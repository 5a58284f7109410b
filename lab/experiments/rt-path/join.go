package rtpath

import (
	"errors"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/suite"
	"github.com/tallywheel/tallywheel/probe"
)

// follower follows the thread of a program, and joins what the kernel and the program say.
type follower struct{ f *probe.Follower }

func follow() suite.Observer { return &follower{} }

func (f *follower) Begin(thread int) (err error) {
	f.f, err = probe.Follow(thread)
	return err
}

func (f *follower) Report(t *contestant.Turn, took time.Duration, _ float64, all []suite.Sample) error {
	paths, err := f.f.Paths()
	if err := errors.Join(err, f.f.Close()); err != nil {
		return err
	}
	s := join(all, paths, t.Text("trigger") == "timer")
	if s.n == 0 {
		return errors.New("no wake-up of the program was found in the kernel")
	}
	mean := func(sum float64) float64 { return sum / float64(s.n) }
	values := []contestant.Value{
		{Metric: "latency_us_mean", V: mean(s.whole) / 1e3},
		{Metric: "path_switch_ns", V: mean(s.run)},
		{Metric: "path_user_ns", V: mean(s.user)},
		{Metric: "path_joined_percent", V: 100 * float64(s.n) / float64(len(all))},
		{Metric: "path_missed", V: float64(len(all) - s.n)},
		{Metric: "path_wakeups", V: float64(len(all))},
		{Metric: "path_error_ns", V: s.worst},
	}
	if t.Text("trigger") == "timer" {
		values = append(values, contestant.Value{Metric: "path_timer_ns", V: mean(s.timer)},
			contestant.Value{Metric: "path_irq_ns", V: mean(s.wake)})
	} else {
		values = append(values, contestant.Value{Metric: "path_wake_ns", V: mean(s.wake)})
	}
	return t.Result(took, uint64(len(all)), values...)
}

// stages are the sums of n wake-ups, in ns: until the timer interrupts, until the thread may run,
// until it runs, until its first line; and of the whole, by the program's clock alone. worst is by
// how much a moment lay before the one that it follows.
type stages struct {
	n                             int
	timer, wake, run, user, whole float64
	worst                         float64
}

// tolerance is by how much the moments of one wake-up may be out of order, in ns, to be taken for
// it: more than the clocks differ, so that it is seen if they do, and less than there is between
// two.
const tolerance = 20_000

// join finds the kernel's path of each sample: the last one that ends with the sample. Both are in
// the order of time.
func join(all []suite.Sample, paths []probe.Path, timed bool) (s stages) {
	i := 0
	for _, one := range all {
		for i < len(paths) && float64(paths[i].Runs) <= one.Woke+tolerance {
			i++
		}
		if i == 0 {
			continue
		}
		p := paths[i-1]
		began, wake := one.Due, one.Due
		if timed {
			// it may have begun before: other timers were handled in it, too
			wake = max(began, float64(p.Interrupted))
		}
		if float64(p.Woken) < began-tolerance || timed && (p.Interrupted == 0 || float64(p.Expired) < began-tolerance) {
			continue // that of a wake-up before, or of no timer
		}
		s.add(wake-began, float64(p.Woken)-wake, float64(p.Runs)-float64(p.Woken), one.Woke-float64(p.Runs))
		s.whole += one.Woke - one.Due
		if timed {
			s.worst = max(s.worst, began-float64(p.Expired))
		}
	}
	return s
}

// add adds the stages of a wake-up.
func (s *stages) add(timer, wake, run, user float64) {
	s.n++
	s.timer, s.wake, s.run, s.user = s.timer+timer, s.wake+wake, s.run+run, s.user+user
	s.worst = max(s.worst, -wake, -run, -user)
}
