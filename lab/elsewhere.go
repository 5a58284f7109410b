package lab

import (
	"context"
	"io"
)

// Turns is what a contestant did in one cell, in turns that were measured elsewhere, as on a board.
type Turns struct {
	Contestant *Contestant
	Cell       Params
	Rounds     []Metrics
	Said       string // by it, of what it found out
	NotRun     string // why it has no rounds
}

// Result is what came of an experiment whose turns were measured elsewhere. It is judged as one
// that ran on the bench.
func (b *Bench) Result(e *Experiment, turns []Turns) ExperimentResult {
	var all []*cellOf
	for _, t := range turns {
		all = append(all, &cellOf{
			c: t.Contestant, cell: t.Cell, rounds: t.Rounds, said: t.Said, notRun: t.NotRun, note: t.Contestant.Note,
		})
	}
	r := e.result(all)
	v := View{&r}
	r.Verdicts = append([]Verdict{}, e.judge(v, b.options)...) // a list in JSON, also of no claims
	if e.Advice != nil {
		r.Advice = e.advise(v)
	}
	return r
}

// Scratch is a folder for files of a measurement, which is removed with the bench, or, where this
// process is killed, by the next one.
func (b *Bench) Scratch() string { return b.bin }

// Tell shows what goes on, on a terminal; "" ends it.
func (b *Bench) Tell(format string, args ...any) { b.tell(format, args...) }

// Take has a program that speaks the protocol work once, without a bench, and returns its figures
// and what it found out. Nothing is counted from outside.
func Take(ctx context.Context, argv ...string) (m Metrics, said string, err error) {
	t := turn{b: &Bench{ctx: ctx, options: Options{CPU: -1}}, c: &Contestant{}}
	p, err := t.start(ctx, argv, Scene{})
	if err != nil {
		return nil, "", err
	}
	if m, err = p.goOn(); err != nil {
		_ = p.cmd.Process.Kill() // what went wrong is known already
		_ = p.cmd.Wait()
	}
	return m, p.found, p.why(err)
}

// goOn has a contestant that is ready work for its time.
func (p *process) goOn() (Metrics, error) {
	if _, err := io.WriteString(p.in, "go\n"); err != nil {
		return nil, err
	}
	said, err := p.done()
	if err != nil {
		return nil, err
	}
	return p.finish(said)
}
