// Package own is our contestants, and those of the standard library: what the program becomes when
// the laboratory calls it. Each speaks the protocol of package contestant.
package own

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// all lists the contestants by name.
var all = map[string]func(*contestant.Turn) error{
	"nop":         nop,
	"nop-ring":    nopRing,
	"fact":        fact,
	"serial":      readSerial,
	"serial-file": readFile,
	"record":      record,
	"udp":         readUDP,
	"tty-map":     mapTTY,
	"touch":       touch,
	"ring-copy":   ringCopy,
	"pool":        pool,
	"crc":         crc,
	"random":      random,
	"sequential":  sequential,
	"buffer":      buffer,
	"lines":       lines,
	"seek":        seek,
	"misuse":      misuse,
	"durable":     durable,
	"append":      appendOnly,
	"frames":      decode,
	"round-trip":  roundTrip,
	"http":        serveHTTP,
	"open-file":   openFile,
	"touch-any":   touchAtRandom,
	"give-back":   giveBack,
	"read-times":  readTimes,
	"workers":     serveWorkers,
	"plain":       plainWorkers,
	"tree":        tree,
	"database":    database,
	"drift":       drift,
	"million":     million,
	"talk":        talk,
	"talk-back":   talkBack,
}

// Names lists what [Run] can be called with.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Run is the contestant that args name.
func Run(args []string, in io.Reader, out io.Writer) error {
	t, err := contestant.New(args, in, out)
	if err != nil {
		return err
	}
	work, ok := all[t.Name]
	if !ok {
		return fmt.Errorf("no contestant %q; there are %s", t.Name, strings.Join(Names(), ", "))
	}
	return work(t)
}

// nop does nothing, at a pace: for the laboratory's own tests. With the parameter slower it does so
// many percent less.
func nop(t *contestant.Turn) error {
	until, err := t.Ready()
	if err != nil {
		return err
	}
	n, loops := uint64(0), 100+t.Int("slower", 0)
	sum := uint64(88172645463325252)
	for turn := 0; turn&1023 != 0 || time.Now().Before(until); turn++ {
		for range loops {
			sum ^= sum << 13
			sum ^= sum >> 7
			sum ^= sum << 17
		}
		n++
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	return t.Result(took, n, contestant.Value{Metric: "sum", V: float64(sum & 1)})
}
