package recordercrash

import (
	"fmt"
	"math"

	"github.com/tallywheel/tallywheel/lab"
)

func judges() []lab.Claim {
	return []lab.Claim{
		nothing("A killed recorder of `isolate: process` loses no byte of a connection, and stores none twice.", recorder, killTCP,
			"The reader goes on, and the next recorder begins at the first byte that is not stored."),
		nothing("A killed reader of `isolate: process` loses no byte of a connection, and stores none twice.", reader, killTCP,
			"The keeper has the connection, and the kernel says to the byte what had been read of it."),
		nothing("An upgrade with `isolate: process` loses no byte of a connection, and stores none twice.", upgraded, restartTCP,
			"It is a kill that was announced: who takes over goes on where the other one was."),
		nothing("A killed recorder of `isolate: process` loses no byte that a serial port had taken, and stores none twice.", recorder, killFast,
			"The reader goes on, and the next recorder begins at the first byte that is not stored."),
		nothing("A killed reader of `isolate: process` loses no byte that a serial port had taken, and stores none twice.", reader, killFast,
			"The keeper has the port, and what a read had taken is known by what stands in the shared memory."),
		named("What a kill costs a recorder in one process, it names to the byte.", killTCP),
		named("What an ordinary restart costs a recorder in one process, it names to the byte.", restartTCP),
	}
}

// nothing is the claim that nothing is lost, or stored twice. One byte refutes it.
func nothing(text string, of *lab.Contestant, cell lab.Params, why string) lab.Claim {
	return lab.Claim{
		Claim: text, Source: lab.Goal("0 B lost, 0 B twice"), Needs: lab.Needs(cell, of),
		Judge: func(v lab.View) (lab.Verdict, bool) {
			b, struck, ok := total(v, of, cell, lab.LostPerEvent, lab.DoubledPerEvent, lab.UnsentPerEvent)
			if !ok {
				return lab.Verdict{}, false
			}
			here := fmt.Sprintf("struck %.0f times: %.0f B lost, %.0f B twice", struck.times, b[0], b[1])
			if cell["line"] == "tcp" { // a port that has no room is the reader's delay, whatever is struck
				b[1] += b[2]
				here += fmt.Sprintf(", %.0f B that nobody took", b[2])
			}
			return lab.NoneIn(struck.rounds, b[0]+b[1] == 0, here, why), true
		},
	}
}

// named is the claim that the books have all that is missing.
func named(text string, cell lab.Params) lab.Claim {
	return lab.Claim{
		Claim: text, Source: lab.Goal("0 B not named"), Needs: lab.Needs(cell, alone),
		Judge: func(v lab.View) (lab.Verdict, bool) {
			b, struck, ok := total(v, alone, cell, lab.LostPerEvent, lab.UnsentPerEvent, lab.UnnamedPerEvent)
			if !ok {
				return lab.Verdict{}, false
			}
			here := fmt.Sprintf("struck %.0f times: %.0f B missing, %.0f B of them not named", struck.times, b[0]+b[1], b[2])
			return lab.NoneIn(struck.rounds, b[2] == 0, here,
				"The device numbers what it says, so the next start sees which numbers never came."), true
		},
	}
}

// strikes says how often something was struck, and in how many rounds.
type strikes struct {
	times  float64
	rounds int
}

// total is the bytes of all rounds by metrics that have them by event, and how many events there
// were; false if they were not measured.
func total(v lab.View, c *lab.Contestant, cell lab.Params, of ...lab.Metric) (b []float64, all strikes, ok bool) {
	struck, ok := v.Figure(c, cell, lab.Events)
	if !ok {
		return nil, all, false
	}
	b = make([]float64, len(of))
	for i, m := range of {
		f, ok := v.Figure(c, cell, m)
		if !ok || f.N != struck.N {
			return nil, all, false
		}
		for j, x := range f.Samples {
			b[i] += math.Round(x * struck.Samples[j])
		}
	}
	for _, n := range struck.Samples {
		all.times += n
	}
	all.rounds = struck.N
	return b, all, true
}
