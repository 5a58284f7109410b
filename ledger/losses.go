package ledger

// Where something was lost, or that it came damaged.
const (
	WhereWire    = "wire"    // before it came to this machine
	WhereHere    = "here"    // in this machine
	WhereDamaged = "damaged" // arrived, and failed its check
)

// Loss is what was lost or damaged under one cause.
type Loss struct {
	Source string `json:"source"` // "": nobody knows whose it was
	Where  string `json:"where"`  // WhereWire, WhereHere or WhereDamaged
	Cause  string `json:"cause"`
	N      uint64 `json:"n"`
	Unit   string `json:"unit"` // frame, byte, datagram or record
}

// MayCome reports whether what was lost are numbers that may still come, late.
func (l Loss) MayCome() bool {
	return l.Where == WhereWire && (l.Cause == causeUnseen || l.Cause == causeCorrupt)
}

// Losses lists what was lost or damaged so far: the amounts of the verdict, each with its source
// and cause, also what of it was acknowledged. Damage of frames whose numbers are missing is there
// once, as missing.
func (s *Sheet) Losses() (all []Loss) {
	whole := s.Whole()
	var v Verdict
	names := map[*Amount]string{&v.LostWire: WhereWire, &v.LostHere: WhereHere, &v.Damaged: WhereDamaged}
	add := func(source string, where func(*Verdict) *Amount, found []find) {
		for _, f := range found {
			if f.n > 0 {
				all = append(all, Loss{source, names[where(&v)], f.what, f.n, f.unit})
			}
		}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		for _, r := range sourceRules {
			if r.where == nil {
				continue
			}
			found := r.finds(s, p)
			if r.kind == kindCorrupt && len(found) > 0 {
				found[0].n -= min(found[0].n, p.Frames.MissingCorrupt)
			}
			add(p.ID, r.where, found)
		}
	}
	for _, r := range sheetRules {
		if r.where != nil {
			add("", r.where, r.finds(whole))
		}
	}
	return all
}
