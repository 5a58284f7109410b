package replay

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// What was on a wire comes in its order, however long frames waited for the log, as long as nothing
// is missing. Each record comes once in any case, and none before one that was read earlier.
func TestWeave(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		frames, waste := &archive.Stream{Frame: "raw"}, &archive.Stream{Frame: "raw", Quarantine: true}
		spooled, lossy := rapid.Bool().Draw(rt, "spooled"), rapid.Bool().Draw(rt, "lossy")
		var wire string // a letter is a byte
		var now int64
		var waiting []seglog.Record // frames that the log does not take yet
		w := weave{knows: true}
		var got string
		at := map[rune]int64{} // when a letter was read
		put := func(rec seglog.Record, of *archive.Stream) {
			for _, p := range w.put(rec, of) {
				got += string(p.data)
			}
		}
		kept := 0
		for n := range rapid.IntRange(1, 40).Draw(rt, "n") {
			now += int64(rapid.IntRange(0, 1).Draw(rt, "later"))
			at[rune('A'+n)] = now
			data := make([]byte, rapid.IntRange(1, 4).Draw(rt, "len"))
			for i := range data {
				data[i] = byte('A' + n)
			}
			rec := seglog.Record{Time: now, Data: data, Offset: seglog.NoOffset}
			isWaste := rapid.Bool().Draw(rt, "waste")
			offset := uint64(len(wire))
			wire += string(data)
			if lossy && rapid.IntRange(0, 9).Draw(rt, "lost") == 0 {
				continue
			}
			kept += len(data)
			if isWaste {
				rec.Data = archive.Quarantined(offset, data)
				put(rec, waste)
				continue
			}
			if spooled {
				rec.Offset = offset
			}
			waiting = append(waiting, rec)
			for len(waiting) > 0 && rapid.IntRange(0, 2).Draw(rt, "taken") > 0 {
				put(waiting[0], frames)
				waiting = waiting[1:]
			}
		}
		for _, rec := range waiting {
			put(rec, frames)
		}
		for _, p := range w.rest() {
			got += string(p.data)
		}
		if len(got) != kept {
			rt.Fatalf("%d bytes of %d", len(got), kept)
		}
		last := int64(0)
		for _, letter := range got {
			if at[letter] < last {
				rt.Fatalf("%c comes late in %s", letter, got)
			}
			last = at[letter]
		}
		if !lossy && got != wire {
			rt.Fatalf("%s came, and %s was on the wire", got, wire)
		}
	})
}
