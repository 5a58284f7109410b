package forward

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// front is a server without JetStream that passes on what it is asked and sent to one that has it,
// but for what the test drops, and answers with what the test makes of its answers.
type front struct {
	url    string
	drops  func(subject string, nth int) bool
	answer func(subject string, data []byte) []byte

	mu  sync.Mutex
	all map[string]int // how often something was asked or sent, by subject
}

func (f *front) asked(subject string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[subject]
}

// serve begins; to is the URL of the server that has the stream.
func (f *front) serve(t *testing.T, to string) {
	t.Helper()
	o := serverOptions(t.TempDir())
	o.JetStream = false
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not serve")
	}
	f.url, f.all = s.ClientURL(), map[string]int{}
	here, there := connected(t, f.url), connected(t, to)
	pass := func(m *nats.Msg) {
		f.mu.Lock()
		f.all[m.Subject]++
		n := f.all[m.Subject]
		f.mu.Unlock()
		if f.drops(m.Subject, n) {
			return
		}
		on := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		if a, err := there.RequestMsg(on, time.Minute); err == nil {
			a.Data = f.answer(m.Subject, a.Data)
			_ = here.PublishMsg(&nats.Msg{Subject: m.Reply, Header: a.Header, Data: a.Data})
		}
	}
	for _, subject := range []string{"$JS.API.>", "tallywheel.>"} {
		if _, err := here.Subscribe(subject, pass); err != nil {
			t.Fatal(err)
		}
	}
	if err := here.Flush(); err != nil {
		t.Fatal(err)
	}
}

func connected(t *testing.T, url string) *nats.Conn {
	t.Helper()
	c, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A question that nobody answers, as while a cluster has no leader, is asked again, and ends no
// session.
func TestAsksAgain(t *testing.T) {
	w := newWorld(t, nil)
	var said testenv.Buffer
	w.told = &said
	f := &front{
		drops:  func(subject string, nth int) bool { return strings.HasPrefix(subject, "$JS.API.") && nth == 1 },
		answer: func(_ string, data []byte) []byte { return data },
	}
	f.serve(t, w.url())
	w.cfg.Forward[0].URLs = []string{f.url}
	w.add(10, "a")
	w.forward()
	w.caughtUp()
	if s := said.String(); strings.Contains(s, "tried again") {
		t.Errorf("a session ended:\n%s", s)
	}
	for _, subject := range []string{"INFO.TALLYWHEEL", "CREATE.TALLYWHEEL", "MSG.GET.TALLYWHEEL"} {
		if n := f.asked("$JS.API.STREAM." + subject); n < 2 {
			t.Errorf("%s was asked %d times", subject, n)
		}
	}
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
}

// A message that a leader took with it is sent again once another one leads, and not only when the
// patience for its acknowledgement is over.
func TestLeaderTakesMessageWithIt(t *testing.T) {
	w := newWorld(t, nil)
	var said testenv.Buffer
	w.told = &said
	f := &front{drops: func(subject string, nth int) bool { return subject == "tallywheel.a" && nth == 1 }}
	f.answer = func(subject string, data []byte) []byte {
		var has map[string]any
		if json.Unmarshal(data, &has) != nil || has["config"] == nil {
			return data
		}
		leader := "n0"
		if f.asked("tallywheel.a") > 0 {
			leader = "n1"
		}
		has["cluster"] = map[string]any{"leader": leader}
		data, _ = json.Marshal(has)
		return data
	}
	f.serve(t, w.url())
	w.cfg.Forward[0].URLs = []string{f.url}
	w.add(10, "a")
	w.forward()
	w.caughtUp()
	if s := said.String(); !strings.Contains(s, "another leader") {
		t.Errorf("it says\n%s", s)
	}
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
}
