package recorder

import (
	"maps"
	"reflect"
	"slices"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
)

// before is a configuration that has the sources of the spools on the shelf as they were recorded:
// what is in those is to be shown to lanes as they were. What the file says comes behind that, by
// a reload, unless the recording stops.
func (i *isolation) before(cfg config.Config) config.Config {
	was := cfg
	was.Sources = slices.Clone(cfg.Sources)
	recorded := i.recorded()
	for _, source := range recorded {
		at := slices.IndexFunc(was.Sources, func(s config.Source) bool { return s.ID == source.ID })
		switch {
		case at < 0:
			was.Sources = append(was.Sources, source)
		case !reflect.DeepEqual(was.Sources[at], source):
			was.Sources[at] = source
		case i.isEnding(source.ID): // so that it cannot go on
		default:
			continue
		}
		i.file = cfg.Sources
	}
	switch {
	case len(i.between) > 0:
		i.file = cfg.Sources
	case i.stops:
		return i.toItsEnd(cfg, was, recorded)
	}
	if i.file == nil {
		return cfg
	}
	i.ends = map[string]bool{}
	for _, s := range recorded {
		_, isGated := i.gated[s.ID]
		goesOn := slices.ContainsFunc(cfg.Sources, func(now config.Source) bool { return sameBooks(s, now) })
		i.ends[s.ID] = s.TCP.All() && !isGated && (!goesOn || i.isEnding(s.ID))
	}
	if was.Validate() != nil { // as where the port of one source is another's now: what is new comes behind
		was.Sources = i.possible(cfg, recorded)
	}
	return was
}

// toItsEnd is before for a recorder that is to end a stop: it records what was left, and nothing
// comes behind that.
func (i *isolation) toItsEnd(cfg, was config.Config, recorded []config.Source) config.Config {
	i.file = nil
	if was.Validate() != nil {
		was.Sources = i.possible(cfg, recorded)
	}
	return was
}

// possible gives up what cannot be recorded of sources as they were. That two have one address, or
// one has that of the API, is no reason: of those, one is left at most that listens.
func (i *isolation) possible(cfg config.Config, recorded []config.Source) []config.Source {
	cfg.API.Listen = "off"
	return slices.DeleteFunc(recorded, func(s config.Source) bool {
		cfg.Sources = []config.Source{s}
		err := cfg.Validate()
		if err == nil {
			return false
		}
		i.log.Error("the configuration was changed while the recorder was down, so that what waited for it cannot be recorded with what is new: "+
			"the source begins anew, and what the log did not have yet of it is missing", "source", s.ID, "error", err)
		for _, id := range i.sources() {
			if archive.Within(id, s.ID) {
				i.giveUp(id)
			}
		}
		return true
	})
}

// then is what comes between spools and file: the gates that are newer than the spools of their
// names, and the other sources that were recorded, but for those whose address such a gate has.
func (i *isolation) then(recorded config.Config) config.Config {
	then := recorded
	then.Sources = slices.Clone(i.between)
	for _, s := range recorded.Sources {
		if slices.ContainsFunc(i.between, func(b config.Source) bool { return b.ID == s.ID }) {
			continue
		}
		then.Sources = append(then.Sources, s)
		if then.Validate() != nil {
			then.Sources = then.Sources[:len(then.Sources)-1]
		}
	}
	return then
}

// recorded is the sources that have something on the shelf which is not recorded yet, as they were:
// those of the spools, and then those of gates. Where a gate is newer than the spools of its name,
// it comes between them and the file.
func (i *isolation) recorded() (all []config.Source) {
	has := func(id string) int {
		return slices.IndexFunc(all, func(s config.Source) bool { return s.ID == id })
	}
	for _, id := range i.sources() {
		if source := i.left[id].root(id); has(source.ID) < 0 { // else it is of another peer
			all = append(all, source)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(i.gated)) {
		if at := has(id); at < 0 {
			all = append(all, i.gated[id])
		} else if !reflect.DeepEqual(all[at], i.gated[id]) {
			i.between = append(i.between, i.gated[id])
		}
	}
	return all
}
