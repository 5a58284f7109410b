package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

var registered []*Experiment

// Register adds an experiment to those of this program; its package calls it when it is
// initialised. It panics if the experiment cannot be what was meant: if it lacks a part, has the
// name of another, or compares to a contestant that it has not.
func Register(e *Experiment) {
	if why := e.wrong(); why != "" {
		panic(fmt.Sprintf("lab: experiment %q %s", e.Name, why))
	}
	registered = append(registered, e)
	slices.SortStableFunc(registered, func(a, b *Experiment) int {
		return cmp.Or(cmp.Compare(slices.Index(Planes(), a.Plane), slices.Index(Planes(), b.Plane)),
			strings.Compare(a.Name, b.Name))
	})
}

// Experiments lists those that are registered, plane by plane.
func Experiments() []*Experiment { return slices.Clone(registered) }

func (e *Experiment) wrong() string {
	named := map[string]bool{}
	for _, c := range e.Contestants {
		if named[c.Name] {
			return "has two contestants " + c.Name
		}
		named[c.Name] = c.Skip == nil // two that are not for the same cells may have one name
	}
	switch {
	case slices.ContainsFunc(registered, func(o *Experiment) bool { return o.Name == e.Name }):
		return "is there already"
	case !slices.Contains(Planes(), e.Plane):
		return "is of no plane"
	case e.Question == "" || e.Method == "" || len(e.Metrics) == 0 || len(e.Contestants) == 0 || len(e.Claims) == 0 ||
		e.Advice == nil:
		return "is not whole"
	case e.Base != nil && !slices.Contains(e.Contestants, e.Base):
		return "compares to " + e.Base.Name + ", which does not take part"
	}
	return ""
}
