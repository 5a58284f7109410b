package recorder

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// However the clock is set, by seconds or by years, and whenever the recorder starts anew, no
// record is taken to be older than it is: retention by age removes none too early.
func TestNoStepOfTheClockMakesARecordOlder(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	const year = 365 * 24 * time.Hour
	for range 3000 {
		c := &clockWatch{}
		now := time.Duration(0)                      // for the world
		booted := -time.Duration(rng.Int64N(1e13))   // … when the machine did
		wall := wrongClock + rng.Int64N(int64(year)) // at 0
		set := int64(0)                              // by which it is wrong
		if rng.IntN(2) == 0 {
			set = -(wall - rng.Int64N(int64(year))) // 1970
		}
		kept := rng.IntN(2) == 0
		type record struct {
			at int64
			by time.Duration
		}
		var records []record
		clock := func() int64 { return wall + int64(now) + set }
		look := func() {
			c.at(clock(), now-booted)
			on := kept && set == 0
			c.synchronised = &on
		}
		look()
		for range 40 {
			now += time.Duration(rng.Int64N(int64(time.Second)))
			if rng.IntN(8) == 0 {
				now += time.Duration(rng.Int64N(int64(30 * 24 * time.Hour)))
				look()
			}
			switch rng.IntN(8) {
			case 0: // somebody sets the clock
				set += rng.Int64N(int64(2*year)) - int64(year)
			case 1:
				set += rng.Int64N(int64(4*time.Hour)) - int64(2*time.Hour)
			case 2:
				set = 0
			case 3, 4, 5:
				records = append(records, record{clock(), now})
			case 6: // the next start
				left := c.wrongTimes()
				c = &clockWatch{}
				c.carry(left)
				look()
			}
			look()
			for _, r := range records {
				if age, is := c.age(r.at), now-r.by; age > is+5*time.Second {
					t.Fatalf("a record is %v old, and taken to be %v: at %v; the clock is wrong by %v, kept %v, %+v", is, age,
						time.Unix(0, r.at), time.Duration(set), kept, c.wrong)
				}
			}
		}
	}
}
