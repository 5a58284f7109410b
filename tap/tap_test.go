package tap

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/detect"
	"github.com/tallywheel/tallywheel/recorder"
)

var update = flag.Bool("update", false, "write the expected output anew")

// player tells a queue what happens, by a clock that it sets itself.
type player struct {
	q  *queue
	at int64
}

func (p *player) after(d time.Duration) *player {
	p.at += int64(d)
	return p
}

func (p *player) event(e recorder.Event) {
	e.At, e.Source = p.at, "a"
	p.q.Watch(e)
}

func (p *player) open()            { p.event(recorder.Event{Kind: recorder.PortOpen, Device: "/dev/ttyUSB0"}) }
func (p *player) gone(err error)   { p.event(recorder.Event{Kind: recorder.PortGone, Err: err}) }
func (p *player) absent(err error) { p.event(recorder.Event{Kind: recorder.PortAbsent, Err: err}) }

func (p *player) plain(data string) {
	p.event(recorder.Event{Kind: recorder.SawFrame, Frame: &frame.Frame{Data: []byte(data)}})
}

func (p *player) frame(f *frame.Frame, fate recorder.Fate) {
	p.event(recorder.Event{Kind: recorder.SawFrame, Frame: f, Fate: fate})
}

func (p *player) numbered(n uint64, fate recorder.Fate) {
	f := &frame.Frame{Data: []byte{0xA5, byte(n)}, Sequenced: true, Device: 7, Epoch: 1, Seq: n, DeviceTime: 5}
	p.event(recorder.Event{Kind: recorder.SawFrame, Frame: f, Fate: fate})
}

func (p *player) damage(part recorder.Part) {
	p.event(recorder.Event{Kind: recorder.SawDamage, Part: part})
}

func (p *player) bytes(part recorder.Part, data string) {
	p.event(recorder.Event{Kind: recorder.SawBytes, Part: part, Data: []byte(data)})
}

// story is all that can happen, at the same times whenever it is told.
func story(q *queue) {
	p := &player{q, time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC).UnixNano()}
	p.open()
	p.after(time.Millisecond).damage(recorder.InFlow)
	p.bytes(recorder.InFlow, "\x01\x02")
	p.after(10 * time.Millisecond).plain("ST,GS,+ 12.5 kg\r\n")
	p.after(3210 * time.Microsecond).plain("\x01\x03\x00\x00\x00\n\xc5\xcd")
	p.plain("together with the last\n")
	p.after(time.Second).plain("Grad °C\n")
	p.plain("\n")
	p.plain("evil \x1b[2J\n")
	p.plain("\xe2\x80\xae turned\n") // a mark that turns the direction
	p.after(time.Hour).numbered(16, recorder.Fate{})
	p.after(time.Microsecond).numbered(20, recorder.Fate{Missing: 3, From: 17, Corrupt: 1})
	p.after(999*time.Nanosecond).numbered(17, recorder.Fate{Late: true})
	p.numbered(17, recorder.Fate{Repeated: true})
	p.after(time.Second).damage(recorder.InFlow)
	for _, c := range "in pieces" {
		p.bytes(recorder.InFlow, string(c))
	}
	p.after(time.Second).bytes(recorder.InFlow, "\x00\xff")
	p.after(time.Millisecond).numbered(22, recorder.Fate{Missing: 1, From: 21, Corrupt: 1})
	p.damage(recorder.AtSilence)
	p.bytes(recorder.AtSilence, "half")
	p.damage(recorder.InFlow)
	p.bytes(recorder.InFlow, strings.Repeat("x", 2000))
	p.after(-time.Second).numbered(23, recorder.Fate{}) // the clock was set back
	p.damage(recorder.AtGone)
	p.bytes(recorder.AtGone, "\xa5")
	p.gone(errors.New("input/output error"))
	p.absent(errors.New("no such file"))
	p.absent(errors.New("no such file"))
	p.after(5 * time.Second).open()
	p.plain("again\n")
	q.note(p.at, true, "12 characters lost: the UART ran over")
	q.note(p.at, false, "a word\nin two lines")
	p.gone(io.EOF)
	p.damage(recorder.AtStop)
	p.bytes(recorder.AtStop, "\x01")
	q.end()
}

var crc = facts{name: "modbus", bits: 16, waits: true, together: togetherLeast}

func show(t *testing.T, f format, tell func(*queue)) string {
	t.Helper()
	q := newQueue(0)
	q.max = 16
	var out bytes.Buffer
	p := &printer{q: q, out: &out, format: f, facts: crc, intro: []string{"a headline"}}
	tell(q)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestLines holds what people and programs see to what is written down.
func TestLines(t *testing.T) {
	for name, f := range map[string]format{
		"plain.txt": text{zone: time.UTC}, "color.txt": text{zone: time.UTC, color: true}, "lines.json": ndjson{"a"},
	} {
		got := show(t, f, story)
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
		}
		for l := range strings.Lines(got) {
			if name == "lines.json" && json.Unmarshal([]byte(l), &map[string]any{}) != nil {
				t.Errorf("no JSON: %s", l)
			}
			if name == "plain.txt" && strings.Contains(l, "\x1b") {
				t.Errorf("an escape: %q", l)
			}
		}
	}
}

// What an output cannot take is counted where it is missing; what comes later is shown.
func TestWhatFindsNoPlaceIsCounted(t *testing.T) {
	q := newQueue(0)
	p := &player{q: q, at: 1}
	p.open()
	const many = maxEvents + 100
	for n := range uint64(many) {
		p.after(time.Microsecond).numbered(n, recorder.Fate{})
	}
	p.gone(io.EOF)
	p.open()
	p.numbered(many, recorder.Fate{Missing: 2})
	b, end := q.take()
	var frames, left, missing uint64
	var kinds []kind
	for _, i := range b.items {
		if i.kind == aFrame {
			frames++
			continue
		}
		kinds = append(kinds, i.kind)
		left += i.counts.frames
		missing += i.counts.missing
	}
	if got, want := fmt.Sprint(kinds), fmt.Sprint([]kind{portOpen, unseen, portGone, portOpen, unseen}); got != want {
		t.Errorf("beside frames: %v, want %v", got, want)
	}
	if frames+left != many+1 || missing != 2 || end {
		t.Errorf("%d frames are shown, %d not, %d are missing among them", frames, left, missing)
	}
	p.numbered(many+1, recorder.Fate{})
	if b, _ := q.take(); len(b.items) != 1 || b.items[0].number != many+1 {
		t.Errorf("behind them: %+v", b.items)
	}
	if c := q.total(); c.Frames != many+2 || c.NotShown != left {
		t.Errorf("counted: %+v", c)
	}
}

// writer takes nothing before it is told to.
type writer struct {
	begun, goOn chan struct{}
	all         bytes.Buffer
}

func (w *writer) Write(b []byte) (int, error) {
	select {
	case w.begun <- struct{}{}:
	default:
	}
	<-w.goOn
	return w.all.Write(b)
}

// While the output is stuck, whoever records is not; and each write is whole lines.
func TestStuckOutputHoldsNobodyUp(t *testing.T) {
	q := newQueue(0)
	w := &writer{begun: make(chan struct{}, 1), goOn: make(chan struct{})}
	p := &printer{q: q, out: w, format: text{zone: time.UTC}, facts: crc}
	done := make(chan error, 1)
	go func() { done <- p.run() }()
	pl := &player{q: q, at: 1}
	pl.open()
	<-w.begun
	const many = 3 * maxEvents
	for n := range uint64(many) {
		pl.numbered(n, recorder.Fate{})
	}
	close(w.goOn)
	q.end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	out := w.all.String()
	c := q.total()
	if shown := strings.Count(out, "7#"); uint64(shown)+c.NotShown != many || c.NotShown == 0 ||
		!strings.HasSuffix(out, "\n") {
		t.Errorf("%d frames, %d shown, %d said not to be", many, shown, c.NotShown)
	}
	if want := fmt.Sprintf("── %d frames not shown", c.NotShown); !strings.Contains(out, want) {
		t.Errorf("%q is not said", want)
	}
}

// A tap that ends while its reader is slow shows no more, and says so.
func TestLateFramesAreCounted(t *testing.T) {
	q := newQueue(0)
	pl := &player{q: q, at: 1}
	pl.plain("a\n")
	pl.plain("b\n")
	q.end()
	var out bytes.Buffer
	p := &printer{q: q, out: &out, format: text{zone: time.UTC}, facts: crc}
	p.late.Store(true)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if c := q.total(); c.NotShown != 2 || !strings.HasPrefix(out.String(), "── 2 frames not shown (4 bytes)") {
		t.Errorf("%+v; output %q", c, out.String())
	}
}

// What counts as damage: not the end of a frame that was under way when the tap began, nor the
// beginning of one when it ends, but all else.
func TestWhatIsDamage(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(*player)
		bad  bool
		want Counts
	}{
		{
			"in the middle", func(p *player) { p.bytes(0, "ab"); p.plain("x") }, false,
			Counts{Frames: 1, Bytes: 1, CutBytes: 2},
		},
		{
			"one damaged at the beginning", func(p *player) { p.damage(0); p.bytes(0, "ab"); p.plain("x") }, false,
			Counts{Frames: 1, Bytes: 1, CutBytes: 2},
		},
		{
			"two", func(p *player) { p.damage(0); p.bytes(0, "ab"); p.damage(0); p.plain("x") }, true,
			Counts{Frames: 1, Bytes: 1, Damaged: 2, Stray: 2},
		},
		{
			"too much for one frame", func(p *player) { p.bytes(0, strings.Repeat("a", 17)); p.plain("x") }, true,
			Counts{Frames: 1, Bytes: 1, Stray: 17},
		},
		{"no frame at all", func(p *player) { p.bytes(0, strings.Repeat("a", 17)) }, true, Counts{Stray: 17}},
		{
			"at the end", func(p *player) { p.plain("x"); p.damage(recorder.AtStop); p.bytes(recorder.AtStop, "ab") },
			false,
			Counts{Frames: 1, Bytes: 1, CutBytes: 2},
		},
		{
			"between", func(p *player) { p.plain("x"); p.bytes(0, "ab"); p.plain("x") }, true,
			Counts{Frames: 2, Bytes: 2, Stray: 2},
		},
		{
			"unplugged", func(p *player) { p.plain("x"); p.gone(errors.New("EIO")) }, true,
			Counts{Frames: 1, Bytes: 1, Outages: 1},
		},
		{
			"unplugged, with numbers", func(p *player) { p.numbered(1, recorder.Fate{}); p.gone(errors.New("EIO")) },
			false,
			Counts{Frames: 1, Bytes: 2, Outages: 1},
		},
		{"ended", func(p *player) { p.plain("x"); p.gone(io.EOF) }, false, Counts{Frames: 1, Bytes: 1}},
		{
			"missing",
			func(p *player) { p.numbered(5, recorder.Fate{Missing: 2}); p.numbered(3, recorder.Fate{Late: true}) },
			true,
			Counts{Frames: 2, Bytes: 4, Missing: 2, Late: 1},
		},
		{
			"late",
			func(p *player) { p.numbered(5, recorder.Fate{Missing: 1}); p.numbered(4, recorder.Fate{Late: true}) },
			false,
			Counts{Frames: 2, Bytes: 4, Missing: 1, Late: 1},
		},
	} {
		q := newQueue(0)
		q.max = 16
		p := &player{q: q, at: 1}
		p.open()
		c.tell(p)
		q.end()
		got := q.total()
		if got.plain = 0; got != c.want || q.total().Bad() != c.bad {
			t.Errorf("%s: %+v, bad is %v; want %+v, %v", c.name, got, q.total().Bad(), c.want, c.bad)
		}
	}
}

// A count ends at exactly so many frames, whatever comes with the last one.
func TestCountIsExact(t *testing.T) {
	q := newQueue(2)
	p := &player{q: q, at: 1}
	p.open()
	for range 5 {
		p.plain("x\n")
	}
	<-q.reached
	q.end()
	b, _ := q.take()
	if c := q.total(); c.Frames != 2 || len(b.items) != 3 {
		t.Errorf("%+v, %d items", c, len(b.items))
	}
}

// finding plays chunks to a printer that looks for the framing.
func finding(t *testing.T, chunks func(p *player), maxFound int) (found []detect.Fit, out string) {
	t.Helper()
	q := newQueue(0)
	ch := make(chan detect.Fit, maxFound)
	var b bytes.Buffer
	p := &printer{q: q, out: &b, format: text{zone: time.UTC}, facts: facts{name: rawFrame}, turns: make(chan facts, 1)}
	p.turns <- facts{name: "line"} // of a turn, if one comes
	p.search = newSearch(ch, 9600, 10, 10*time.Millisecond)
	pl := &player{q: q, at: 1e18}
	pl.open()
	chunks(pl)
	q.end()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	close(ch)
	for f := range ch {
		found = append(found, f)
	}
	return found, b.String()
}

func (p *player) chunk(data []byte) {
	p.event(recorder.Event{Kind: recorder.SawFrame, Part: recorder.AtSilence, Frame: &frame.Frame{Data: data}})
}

func TestSearchFindsLooksAgainAndSaysWhatItSees(t *testing.T) {
	found, out := finding(t, func(p *player) {
		for n := range 5 {
			p.after(time.Second).chunk(fmt.Appendf(nil, "weight %d kg\r\n", n))
		}
	}, 4)
	if len(found) != 1 || found[0].Framing.String() != "line" {
		t.Errorf("text is %v; output %s", found, out)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	found, out = finding(t, func(p *player) {
		for range 100 {
			b := make([]byte, 10)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			p.after(time.Second).chunk(b)
		}
	}, 4)
	if len(found) != 0 || !strings.Contains(out, "undecided so far: no framing fits 260 bytes") {
		t.Errorf("noise is %v; output %s", found, out)
	}
	found, out = finding(t, func(p *player) {
		for range 100 {
			p.after(time.Second).chunk([]byte{0x00, 0xF8, 0xFF, 0x80})
		}
	}, 4)
	if len(found) != 0 || strings.Count(out, "look like a wrong rate (it is 9600)") != 1 {
		t.Errorf("a wrong rate is %v; output %s", found, out)
	}
	found, out = finding(t, func(p *player) { // text was found; then something else comes
		p.event(recorder.Event{Kind: recorder.Turned})
		p.plain("ready\n")
		for range 100 {
			p.after(time.Second).damage(recorder.InFlow)
			p.bytes(recorder.InFlow, strings.Repeat("\x01", 200))
		}
	}, 4)
	if len(found) != 1 || found[0].Framing.Kind != rawFrame || !strings.Contains(out, "does not fit any more") {
		t.Errorf("a line that changes: %v; output %.300s", found, out)
	}
}

// A bad configuration is said, and nothing is left behind.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	before, _ := filepath.Glob(filepath.Join(memory, memoryPattern))
	_, err := Run(t.Context(), Config{Source: config.Source{ID: "a", UDP: &config.Net{Listen: "nonsense"}}, Auto: true},
		io.Discard)
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Errorf("a bad address gives %v", err)
	}
	after, _ := filepath.Glob(filepath.Join(memory, memoryPattern))
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 || len(after) > len(before) {
		t.Errorf("left behind: %v, %v", left, after)
	}
}

func TestSummary(t *testing.T) {
	for want, r := range map[string]Result{
		"0 frames, 0 bytes; nothing came in a frame; nothing was lost or damaged that can be seen": {},
		"1 frame, 8 bytes; the port was gone 2 times; what came meanwhile is lost":                 {Counts: Counts{Frames: 1, Bytes: 8, Outages: 2, plain: 1}, Bad: true},
		"2 frames, 9 bytes, 1 missing, 1 late; something was lost or damaged":                      {Counts: Counts{Frames: 2, Bytes: 9, Missing: 2, Late: 1}, Bad: true},
		"2 frames, 9 bytes, 7 not shown; nothing was lost or damaged that can be seen":             {Counts: Counts{Frames: 2, Bytes: 9, NotShown: 7}},
		"1 frame, 1 byte; the port was gone 1 time; something was lost or damaged":                 {Counts: Counts{Frames: 1, Bytes: 1, Outages: 1, plain: 1}, Bad: true, Lost: true},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A request that nothing has followed in time is said and counted once; a late answer takes it
// back.
func TestOverdueRequests(t *testing.T) {
	for _, late := range []bool{false, true} {
		var q *queue
		got := show(t, text{zone: time.UTC}, func(told *queue) {
			q = told
			p := &player{q, 0}
			p.open()
			p.frame(&frame.Frame{Data: []byte("say\n"), Answers: true}, recorder.Fate{})
			p.frame(&frame.Frame{Data: []byte("ask\n"), Asks: true}, recorder.Fate{})
			p.event(recorder.Event{Kind: recorder.NoAnswer})
			if late {
				p.frame(&frame.Frame{Data: []byte("say\n"), Answers: true}, recorder.Fate{AnsweredLate: true})
			}
			q.end()
		})
		want := "ask\n── no answer to the last request yet\n"
		if late {
			want += "── the answer comes late\n"
		}
		if c := q.total(); !strings.Contains(got, want) || (c.Unanswered == 0) != late || c.Bad() == late {
			t.Errorf("late %v: %+v\n%s", late, c, got)
		}
	}
}

// A request without an answer is said before the frame that shows it, and is a loss where others
// were answered.
func TestUnansweredRequests(t *testing.T) {
	for _, hears := range []bool{true, false} { // both sides of the line
		var q *queue
		got := show(t, text{zone: time.UTC}, func(told *queue) {
			q = told
			p := &player{q, 0}
			p.open()
			p.frame(&frame.Frame{Data: []byte("ask\n"), Asks: true}, recorder.Fate{})
			if hears {
				p.frame(&frame.Frame{Data: []byte("say\n"), Answers: true}, recorder.Fate{})
				p.frame(&frame.Frame{Data: []byte("ask\n"), Asks: true}, recorder.Fate{})
			}
			p.frame(&frame.Frame{Data: []byte("ask again\n"), Asks: true, Unanswered: true},
				recorder.Fate{Unanswered: true})
			q.end()
		})
		c := q.total()
		if !strings.Contains(got, "ask\n── no answer to the request before\n") || c.Unanswered != 1 ||
			c.Bad() != hears {
			t.Errorf("both sides %v: %+v, bad %v\n%s", hears, c, c.Bad(), got)
		}
	}
}
