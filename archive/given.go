package archive

import "slices"

// Run is stream numbers that follow each other.
type Run struct {
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
}

// Given lists the numbers that the table has, in order.
func (s *Streams) Given() []Run {
	var runs []Run
	for _, n := range s.numbers() {
		if last := len(runs) - 1; last >= 0 && n <= runs[last].To+1 {
			runs[last].To = n
		} else {
			runs = append(runs, Run{n, n})
		}
	}
	return runs
}

// Lacks lists those of the numbers that the table does not have: it is older than who has seen them
// in it. Runs that are none are left out: files may be damaged.
func (s *Streams) Lacks(given []Run) (lacks []Run) {
	have := s.numbers()
	for _, r := range given {
		at, _ := slices.BinarySearch(have, r.From)
		from, isOver := r.From, r.From > r.To
		for ; !isOver && at < len(have) && have[at] <= r.To; at++ {
			if from < have[at] {
				lacks = append(lacks, Run{from, have[at] - 1})
			}
			from, isOver = have[at]+1, have[at] == r.To
		}
		if !isOver {
			lacks = append(lacks, Run{from, r.To})
		}
	}
	return lacks
}

// GiveBehind has the table give no number that is in one of the runs, or below.
func (s *Streams) GiveBehind(runs []Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		s.from = max(s.from, r.To+1)
	}
}

// numbers lists those of the table, in order.
func (s *Streams) numbers() (all []uint32) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.all {
		all = append(all, e.Number)
	}
	slices.Sort(all)
	return all
}
