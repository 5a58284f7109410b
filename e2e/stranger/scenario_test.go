package stranger

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

var (
	scenarios = flag.Int("scenarios", 80, "how many scenarios to run")
	firstSeed = flag.Uint64("seed", 1, "seed of the first scenario; the next one has the next")
	atOnce    = flag.Int("at-once", 6, "scenarios that run at the same time: they wait more than they work")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(*atOnce)); err != nil {
		panic(err)
	}
	code := m.Run()
	testenv.CleanUp()
	os.Exit(code)
}

// framings are those of the configuration, with the settings that the feeder's have.
var framings = []struct{ name, config string }{
	{"tally128", "tally128"},
	{"modbus", "modbus"},
	{"cobs", "{kind: cobs, max: 1000}"},
	{"cobs-crc", "{kind: cobs, check: ccitt}"},
	{"slip-crc", "{kind: slip, check: modbus}"},
	{"line", "line"},
	{"nmea", "{kind: line, check: nmea}"},
	{"length", "{kind: length, prefix: 2, endian: big, check: modbus}"},
	{"raw", "{kind: raw, gap: 200ms, max: 960}"},
}

var carriers = []string{"pty", "tcp-listen", "tcp-dial", "udp", "tcp-all"}

// scenario is all that a run depends on, but for time.
type scenario struct {
	seed                   uint64
	framing, frame         string
	carrier                string
	situation              situation
	quarantine, withFaults bool
	rate                   int // of the feeder, in bytes a second; 0: the situation has one
}

// scenarioOf counts through the three lists at once: their lengths have no common divisor, so every
// combination comes.
func scenarioOf(seed uint64) scenario {
	f := framings[seed%uint64(len(framings))]
	sc := scenario{
		seed: seed, framing: f.name, frame: f.config,
		carrier:    carriers[seed%uint64(len(carriers))],
		situation:  situations[seed%uint64(len(situations))],
		quarantine: seed/3%2 == 0,
		withFaults: seed/5%3 == 0,
	}
	if sc.situation.devices > 1 {
		sc.framing, sc.frame = framings[0].name, framings[0].config // the others do not number their devices
	}
	if sc.situation.erased {
		sc.withFaults = false // nobody knows any more what the device did wrong
	}
	return sc
}

func (sc scenario) String() string {
	faults := ""
	if sc.withFaults {
		faults = "-with-faults"
	}
	return fmt.Sprintf("%d-%s-%s-%s%s", sc.seed, sc.framing, sc.carrier, sc.situation.name, faults)
}

func TestStrangers(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: 80 scenarios take a minute; run without -short")
	}
	py := python(t)
	var judged atomic.Int32
	for n := range *scenarios {
		sc := scenarioOf(*firstSeed + uint64(n))
		t.Run(sc.String(), func(t *testing.T) {
			t.Parallel()
			if s := play(t, sc, py); s.level != nil {
				judged.Add(1)
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("the level of %d of %d scenarios was held against the truth", judged.Load(), *scenarios)
	})
}

// play runs one scenario and judges it.
func play(t *testing.T, sc scenario, python string) *stage {
	testenv.Binary(t) // before there is a feeder: it waits for a minute, and a build may take longer
	s := newStage(t, sc)
	defer func() {
		if t.Failed() {
			t.Logf("settings: %+v", s.cfg)
			t.Logf("again: go test ./e2e/stranger -run TestStrangers -scenarios 1 -seed %d", sc.seed)
			for n, r := range s.starts {
				t.Logf("start %d said:\n%s", n+1, tail(r.Err.String(), 30_000))
			}
		}
	}()
	if sc.situation.prepare != nil {
		sc.situation.prepare(s)
	}
	s.feeder = startFeeder(t, s, python)
	s.start()
	s.feeder.command("go")
	s.goesOn("it begins", startPatience)
	sc.situation.act(s)
	if s.recorder.running() && s.rng.IntN(2) == 0 { // while all goes on
		s.lookAtLevel(false)
		s.recorder.stop()
	}
	s.feeder.command("end")
	if s.recorder.running() {
		s.lookAtLevel(true)
		s.recorder.stop()
	}
	s.feeder.command("truth")
	if t.Failed() {
		return s
	}
	for _, complaint := range s.judge(s.readTruth()) {
		t.Error(complaint)
	}
	return s
}

// python is the interpreter itself, not a shim that looks for it each time.
func python(t *testing.T) string {
	t.Helper()
	path := testenv.Program(t, "python3", "apt install python3")
	out, err := exec.Command(path, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// The law notices what it is there for: an altered truth is not that of the log and the books.
func TestTheLawNotices(t *testing.T) {
	py := python(t)
	for _, seed := range []uint64{576, 688} { // normal: tally128 over TCP, and slip-crc over UDP
		sc := scenarioOf(seed)
		sc.rate = 20_000 // what is sent fits into the buffer of a socket that nobody reads
		s := play(t, sc, py)
		if s.situation.name != "normal" || t.Failed() {
			t.Fatalf("seed %d is %s", seed, s.scenario)
		}
		// At this rate, both have the feeder end before the recorder stops. One that goes on until
		// the stop may connect again, and the law says less of several connections.
		if wires := s.readTruth().Wires; len(wires) != 1 || wires[0].End != "ended" {
			t.Fatalf("seed %d has connections %+v, and not one that the feeder has ended", seed, wires)
		}
		for name, alter := range map[string]func(tr *truth){
			"another byte acknowledged": func(tr *truth) { tr.Wires[0].Written++; tr.Wires[0].Acked++ },
			"another frame acknowledged": func(tr *truth) {
				f := tr.Frames[10]
				f.At, f.Number, f.Data = tr.Wires[f.Wire].Acked, 1<<20, "00"+f.Data
				tr.Frames = append(tr.Frames, f)
				tr.Wires[f.Wire].Acked += uint64(len(f.Data) / 2)
			},
			"a frame not sent":   func(tr *truth) { tr.Frames = append(tr.Frames[:10], tr.Frames[11:]...) },
			"a datagram refused": func(tr *truth) { tr.Frames[10].Wire = -1 },
			"another order": func(tr *truth) {
				tr.Frames[10].At, tr.Frames[50].At = tr.Frames[50].At, tr.Frames[10].At
			},
			"a frame that was damaged": func(tr *truth) { tr.Frames[10].Valid = false },
			"a connection not ended":   func(tr *truth) { tr.Wires[0].End = "HANGS" },
		} {
			tr := s.readTruth()
			alter(&tr)
			if len(s.judge(tr)) == 0 {
				t.Errorf("seed %d: the law does not notice: %s", seed, name)
			}
		}
		for _, level := range []string{"bad", "good"} {
			s.level = &status{Level: level, Good: level == "good", Sheet: s.level.Sheet}
			if len(s.judge(s.readTruth())) == 0 && (level == "bad" || s.framing != "tally128") {
				t.Errorf("seed %d: the law does not notice that the level is %s", seed, level)
			}
		}
	}
}

// What is stored of a raw block that a dropped chunk has cut is not lost; bytes that nobody sent
// are no piece.
func TestPiecesOfRawBlocks(t *testing.T) {
	block := func(n byte) []byte {
		return append([]byte("\xfeRAW\x00\x00\x00"), bytes.Repeat([]byte{n}, blockSize-7)...)
	}
	for name, c := range map[string]struct {
		stored         [][]byte
		pieces, unsent int
	}{
		"whole":             {[][]byte{block(1), block(2), block(3), block(4)}, 0, 0},
		"the front":         {[][]byte{block(1), block(2)[:32], block(4)}, 32, 0},
		"the end":           {[][]byte{block(1), block(3)[40:], block(4)}, 8, 0},
		"an end at the end": {[][]byte{block(1), block(2), block(4)[20:]}, 28, 0},
		"both":              {[][]byte{block(1)[:20], block(3)[40:], block(4)}, 28, 0},
		"nobody's":          {[][]byte{block(1), []byte("never"), block(3)}, 0, 1},
	} {
		j := &judgement{stage: &stage{scenario: scenario{framing: "raw"}}, frameByContent: map[string]*sentFrame{}}
		for n := range byte(4) {
			f := sentFrame{At: uint64(n), Valid: true, bytes: block(n + 1), certain: true}
			j.truth.Frames = append(j.truth.Frames, f)
		}
		for i := range j.truth.Frames {
			f := &j.truth.Frames[i]
			j.frameByContent[string(f.bytes)] = f
		}
		j.match(j.blocks(slices.Concat(c.stored...)))
		for i := range j.truth.Frames {
			if f := &j.truth.Frames[i]; !f.stored {
				j.lost = append(j.lost, f)
			}
		}
		if got := j.bytesOfPieces(); int(got) != c.pieces || len(j.complaints) != c.unsent {
			t.Errorf("%s: %d bytes of pieces, want %d; complaints: %q", name, got, c.pieces, j.complaints)
		}
	}
}

// The feeder's framings are as other people's programs have them.
func TestFramingsOfTheFeeder(t *testing.T) {
	for _, other := range []string{"pymodbus", "pynmea2"} {
		py := testenv.Python(t, other, "pip install "+other)
		out, err := exec.Command(py, "-B", "testdata/frames.py").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		} else if !strings.Contains(string(out), other) {
			t.Logf("SKIPPED: not compared with %s: it is of another version", other)
		}
	}
}

// Both are for processes on a busy machine. That a recorder goes on within two seconds is held to
// on fake time, by package recorder.
const (
	startPatience = time.Minute
	livePatience  = 40 * time.Second
)
