// Package recordercrash asks what a crash of a recorder costs, and its restart.
package recordercrash

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/load"
)

// telegrafd is built of what its reading, writing and parsing takes alone.
var telegrafd = lab.Module("github.com/influxdata/telegraf/cmd/telegraf", "v1.37.2",
	"custom", "inputs.socket_listener", "outputs.file", "parsers.value", "serializers.template")

var (
	rsyslogd = lab.Tool("rsyslogd", "apt install rsyslog")
	vectord  = lab.Tool("vector", "vector.dev/download")
)

var isolated = tallywheel("process", "tally128")

var (
	alone = ours("none", tallywheel("none", "tally128"))
	lines = ours("none lines", tallywheel("none", "line")).But("lines of text, as the others have them, whose numbers it does not know")

	recorder = ours("process recorder", isolated).But("isolate: process; of its three processes the recorder is struck").For(kill)
	reader   = ours("process reader", isolated).But("isolate: process; of its three processes the reader is struck").For(kill)
	upgraded = ours("process upgrade", isolated).But("isolate: process; another recorder goes on, and another reader, as by `tallywheel upgrade`").For(restart)
	stopped  = ours("process stop", isolated).But("isolate: process; all three are stopped, and nobody keeps their connections, as systemd's store does").For(restart)

	telegraf = theirs("telegraf", telegrafs,
		telegrafd).But("socket_listener to a file; by its defaults 1,000 lines are written at once, or what is there after 10 s")
	rsyslog = theirs("rsyslog", rsyslogs, rsyslogd).But("imtcp to a file; by its defaults what waits is in memory")
	otelcol = theirs("otelcol", otelcols, lab.Otelcol()).But("tcp_log to a file to which it appends, else by its defaults; OpenTelemetry collector v0.165.1")
	vector  = theirs("vector", vectors, vectord).But("a socket to a file, by its defaults")

	others = []*lab.Contestant{telegraf, rsyslog, otelcol, vector}
)

// products are what contestants run, by their names.
var products = map[string]product{}

// runs is a contestant that has a product record.
func runs(name string, p product) *lab.Contestant {
	products[name] = p
	return lab.Ours(name, supervised(p))
}

func ours(name string, p product) *lab.Contestant { return runs("tallywheel/"+name, p) }

func theirs(name string, p product, program lab.Program) *lab.Contestant {
	return runs(name, p).Starting(program).For(lab.Params{"line": "tcp"})
}

// The cells. The fast line is the articles' 400 KB/s, the slow one what 115,200 Bd carry.
var (
	kill, restart = lab.Params{"event": "kill"}, lab.Params{"event": "restart"}

	killTCP    = lab.Params{"event": "kill", "line": "tcp", "rate": "400000"}
	restartTCP = lab.Params{"event": "restart", "line": "tcp", "rate": "400000"}
	killFast   = lab.Params{"event": "kill", "line": "pty", "rate": "400000"}
	killSlow   = lab.Params{"event": "kill", "line": "pty", "rate": "11520"}
)

// turn is how long a turn is at least: three strikes.
const turn = 1500 * time.Millisecond

func init() {
	lines.InQuick() // it shows what a full run has time for
	lab.Register(&lab.Experiment{
		Name: "recorder-crash", Plane: lab.Processes,
		Question: "What does a crash of a recorder cost, and its restart?",
		Method: "A device says records of 128 bytes, each with its number, at a rate, and none of them twice. At tcp it connects to the recorder, and again as soon as the connection has ended; at pty it is behind a serial port of 20 KiB, which keeps what it holds while nobody has it open, as a UART does not. " +
			"A supervisor starts the recorder again at once. Once in half a second, at the same moments of chance for all, its process is killed by kill -9, or stopped by SIGTERM. Lost is what the kernel had taken of the device and what is not stored when the last start has stopped; nobody took what came while there was no connection, or no room in the port. " +
			"Of both, not named is what the recorder's own books do not have as missing; only Tallywheel keeps such. Tallywheel's records are frames of tally128, the others' lines of text, of the same length.",
		Metrics: []lab.Metric{
			lab.LostPerEvent, lab.UnsentPerEvent, lab.DoubledPerEvent, lab.UnnamedPerEvent, lab.LongestGap,
			lab.Events, lab.CPUPercent, lab.RSS,
		},
		Base: alone, Turn: 4 * time.Second,
		Least: func(lab.Params) time.Duration { return turn },
		Cells: func(o lab.Options) []lab.Params {
			if o.Full {
				return []lab.Params{killTCP, restartTCP, killFast, killSlow}
			}
			return []lab.Params{killTCP}
		},
		Contestants: append([]*lab.Contestant{alone, lines, recorder, reader, upgraded, stopped}, others...),
		Scene:       scene,
		Advice:      advice,
		Claims:      judges(),
	})
}

// scene is the device of one turn, and how the contestant is struck.
func scene(b *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
	of := func(r isolate.Role) func(int) int { return load.StartedWith(isolate.RoleVariable + "=" + string(r)) }
	s := load.Strike{Signal: syscall.SIGKILL, Target: load.Started}
	if cell.Has(restart) {
		s.Signal = syscall.SIGTERM
	}
	switch c {
	case recorder:
		s.Target = of(isolate.Recorder)
	case reader:
		s.Target = of(isolate.Reader)
	case upgraded:
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		s.Command = func(folder string) []string { return []string{exe, "upgrade", "-c", configuration(folder)} }
	}
	p := products[c.Name]
	return load.Crashes{
		Port: cell["line"], Rate: float64(cell.Int("rate")), Record: p.record, Stores: p.stores, Strike: s,
	}.Scene(b)
}

func advice(v lab.View) string {
	if _, ok := v.Medians(killTCP, lab.LostPerEvent, alone, recorder); !ok {
		return ""
	}
	who := []*lab.Contestant{alone, recorder, reader}
	names := []string{"Tallywheel in one process", "isolated", "isolated, its reader killed"}
	for _, c := range others {
		if _, ok := v.Figure(c, killTCP, lab.LostPerEvent); ok {
			who, names = append(who, c), append(names, c.Name)
		}
	}
	lost, ok := v.Beside(killTCP, lab.LostPerEvent, "%.1f", 1e3, who...)
	if !ok {
		return ""
	}
	var parts []string
	for i, name := range names {
		parts = append(parts, fmt.Sprintf("%s %s", name, lost[i]))
	}
	return "A kill -9 at 400 KB/s loses so many kB that were taken from a device: " + strings.Join(parts, ", ") + "."
}
