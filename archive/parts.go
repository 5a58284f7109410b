package archive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/ledger"
)

// A source that leaves has its last account in the history, as a part of its start, which goes on.
// From then on no sheet of that start has the account. A start may be killed between the two
// writes: its sheet is then of before, and the next start gives up what the parts have.

// NumberAccounts notes which book each account of the sheet is of, for GiveUp, and for a recorder
// that goes on with the start.
func (s *StartSheet) NumberAccounts() {
	s.Books, s.Own = nil, nil
	isOwn := true
	for _, p := range s.accounts() {
		s.Books, s.Own = append(s.Books, cmp.Or(p.Hub, p.Book)), append(s.Own, p.Book)
		isOwn = isOwn && p.Hub == 0
	}
	if isOwn {
		s.Own = nil
	}
}

// accounts are those of the sources that are there, then of those that are leaving.
func (s *StartSheet) accounts() (all []*ledger.Port) {
	for _, of := range [][]ledger.Port{s.Sheet.Ports, s.Sheet.Leaving} {
		for i := range of {
			all = append(all, &of[i])
		}
	}
	return all
}

// tellBooks says in the accounts of a sheet that was read which books they are of.
func (s *StartSheet) tellBooks() {
	all := s.accounts()
	if len(all) != len(s.Books) {
		return // a program before this wrote it
	}
	for i, p := range all {
		if p.Book = s.Books[i]; strings.Contains(p.ID, "/") {
			p.Hub = p.Book
		}
		if len(s.Own) == len(all) {
			p.Book = s.Own[i]
		}
	}
}

// PartsBehind lists the parts of its start in dir that the sheet has not given up, in their order.
// Lines that cannot be read are passed over.
func (s *StartSheet) PartsBehind(dir string) (parts []*StartSheet, err error) {
	err = eachKept(dir, func(l *historyLine, _ extent) error {
		if part := l.sheet; l.err == nil && part.isPartOf(s) && part.Parts > s.Parts {
			part.tellBooks()
			parts = append(parts, &part)
		}
		return nil
	})
	return parts, err
}

// isPartOf reports whether s is a part of the start of o.
func (s *StartSheet) isPartOf(o *StartSheet) bool {
	return s.Part && s.Sheet.Since != 0 && s.Sheet.Since == o.Sheet.Since
}

// GiveUp takes the accounts of a part out of the sheet, and goes on with the numbers of its sources
// where the part has them.
func (s *StartSheet) GiveUp(part *StartSheet) {
	left := func(p ledger.Port) bool {
		return p.Book != 0 && slices.Contains(part.Books, cmp.Or(p.Hub, p.Book))
	}
	s.Sheet.Ports = slices.DeleteFunc(s.Sheet.Ports, left)
	s.Sheet.Leaving = slices.DeleteFunc(s.Sheet.Leaving, left)
	if s.Positions == nil {
		s.Positions = map[string][]ledger.Position{}
	}
	for source, ps := range part.Positions {
		for _, p := range ps {
			at := find(s.Positions[source], idOf(p))
			switch {
			case at == nil:
				s.Positions[source] = append(s.Positions[source], p)
			case ledger.Later(p.Last, at.Last) == p.Last:
				*at = p
			default:
				at.Filled = nil // stored, or counted as dropped
			}
		}
	}
	s.Parts = part.Parts
	s.NumberAccounts()
}
