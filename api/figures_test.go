package api

import (
	"encoding/json"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// figure is the value of a series as /metrics has it; -1: it is not there.
func figure(t *testing.T, metrics, series string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(metrics)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The size of the log is what is recorded, not what its files hold in advance.
func TestLogBytesAreWhatIsRecorded(t *testing.T) {
	g, s, c := served(t, func(c *config.Config) { c.Log.Segment = 4 << 20 }, device.source)
	write(t, c, frames(0, 100))
	stored(t, g, "a", 100)
	_, body := get(t, s.URL()+"metrics", nil)
	size, ahead := figure(t, body, "tallywheel_log_bytes"), figure(t, body, "tallywheel_log_ahead_bytes")
	if size < 100*128 || size > 1<<20 || ahead < 3<<20 {
		t.Errorf("100 frames take %v bytes, and %v are ahead", size, ahead)
	}
}

// The sheet, the status, the metrics and healthz say the same of what is lost, where, and of what
// nobody can know.
func TestVerdictIsTheSameEverywhere(t *testing.T) {
	a, b := newDevice(t), newDevice(t)
	text := b.source("b")
	text.Frame.Kind = "line"
	g := start(t, nil, a.source("a"), text)
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	ca, cb := a.connected(t), b.connected(t)
	defer ca.Close()
	defer cb.Close()
	write(t, ca, frames(0, 3))
	write(t, cb, []byte("one\n"))
	stored(t, g, "a", 3)
	stored(t, g, "b", 1)
	same := func(level ledger.Level, rank float64, code int, wire, damaged uint64) {
		t.Helper()
		var sheet ledger.Sheet
		var st Status
		_, sheetBody := get(t, s.URL()+"api/v1/sheet", nil)
		_, statusBody := get(t, s.URL()+"api/v1/status", nil)
		_, metrics := get(t, s.URL()+"metrics", nil)
		if err := json.Unmarshal([]byte(sheetBody), &sheet); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(statusBody), &st); err != nil {
			t.Fatal(err)
		}
		if v := sheet.Verdict; v == nil || v.Level != level || v.Text != st.Verdict || v.LostWire != st.LostWire ||
			v.Damaged != st.Damaged {
			t.Errorf("the sheet has %+v, the status %q", v, st.Verdict)
		}
		if st.Level != level || st.Good != (level == ledger.Good) || st.LostWire.Frames != wire ||
			st.Damaged.Frames != damaged ||
			!slices.Equal(st.Unknown, []string{"b"}) || (st.LastLoss != 0) != (wire+damaged > 0) {
			t.Errorf("the status: %.500s", statusBody)
		}
		for series, want := range map[string]float64{
			"tallywheel_verdict_level":                           rank,
			`tallywheel_lost{unit="frames",where="wire"}`:        float64(wire),
			`tallywheel_lost{unit="frames",where="here"}`:        0,
			`tallywheel_damaged{unit="frames"}`:                  float64(damaged),
			`tallywheel_absence_unknown{source="a"}`:             0,
			`tallywheel_absence_unknown{source="b"}`:             1,
			`tallywheel_missing_frames{how="unseen",source="a"}`: float64(wire),
		} {
			if got := figure(t, metrics, series); got != want {
				t.Errorf("%s is %v, want %v", series, got, want)
			}
		}
		if got, body := get(t, s.URL()+"healthz", nil); got != code {
			t.Errorf("healthz: %d %s, want %d", got, body, code)
		}
	}
	same(ledger.Watch, 1, http.StatusOK, 0, 0)
	write(t, ca, frames(5, 3))
	stored(t, g, "a", 6)
	write(t, cb, []byte("$GPGLL*00\ntwo\n"))
	stored(t, g, "b", 2)
	same(ledger.Bad, 2, http.StatusServiceUnavailable, 2, 1)
}

// Each rule of the verdict is a series, 0 where it does not hold; so is what each source may lose,
// or the first loss would be no increase. A frame that comes late takes nothing out of what was
// lost.
func TestReasonsAndLossesAreSeries(t *testing.T) {
	a := newDevice(t)
	absent := a.source("b")
	absent.TCP = &config.Net{Listen: "127.0.0.1:0"}
	g := start(t, nil, a.source("a"), absent)
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	has := func(of string, want map[string]float64) bool {
		_, metrics := get(t, s.URL()+"metrics", nil)
		rules := ledger.Rules()
		if n := strings.Count(metrics, "\ntallywheel_reason{"); n != len(rules) {
			t.Errorf("%s: %d reasons; there are %d rules", of, n, len(rules))
		}
		for _, r := range rules {
			series := `tallywheel_reason{level="` + string(r.Level) + `",reason="` + r.Kind + `"}`
			if got := figure(t, metrics, series); got != want[r.Kind] && r.Kind != "clock_steps" { // of this machine
				t.Logf("%s: %s is %v", of, series, got)
				return false
			}
		}
		return figure(t, metrics, `tallywheel_losses_total{source="a",unit="frames",where="wire"}`) == want["wire"] &&
			figure(t, metrics, `tallywheel_losses_total{source="a",unit="bytes",where="here"}`) == 0 &&
			figure(t, metrics, `tallywheel_losses_total{source="",unit="records",where="here"}`) == 0 &&
			figure(t, metrics, `tallywheel_last_end{end="stopped"}`) == 0
	}
	until := func(of string, want map[string]float64) {
		t.Helper()
		testenv.Until(t, time.Minute, of, func() bool { return has(of, want) })
	}
	c := a.connected(t)
	defer c.Close()
	write(t, c, frames(0, 3))
	until("b is not there", map[string]float64{"not_there": 1})
	write(t, c, frames(5, 3))
	until("two are missing", map[string]float64{"not_there": 1, "missing_unseen": 1, "wire": 2})
	write(t, c, frames(3, 2))
	until("they came late", map[string]float64{"not_there": 1, "wire": 2})
}

// A client that asks and asks, and takes no answer, is cut, however short the answers are.
func TestClientThatTakesNoShortAnswerIsCut(t *testing.T) {
	eachEngine(t, testClientThatTakesNoShortAnswerIsCut)
}

func testClientThatTakesNoShortAnswerIsCut(t *testing.T) {
	defer func(d time.Duration) { writeTimeout = d }(writeTimeout)
	writeTimeout = 2 * time.Second
	g := start(t, nil)
	s := serve(t, g)
	c := dial(t, s.addr.String())
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	requests := []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 100))
	var err error
	for err == nil {
		_, err = c.Write(requests) // waits once both sides hold what they can
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the client is still connected after a minute")
	}
	if err := s.Close(); err != nil { // before the time-out is what it was
		t.Error(err)
	}
	stop(t, g)
}
