package forward

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// deafEar is a server that passes on to another what is asked of its JetStream, but for the first
// of each question, as a cluster does in which nobody leads at that moment. It returns its URL, and
// how often something was asked.
func deafEar(t *testing.T, to string) (url string, asked func(subject string) int) {
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
	front, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close)
	back, err := nats.Connect(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(back.Close)
	var mu sync.Mutex
	all := map[string]int{}
	pass := func(m *nats.Msg) {
		mu.Lock()
		all[m.Subject]++
		n := all[m.Subject]
		mu.Unlock()
		if strings.HasPrefix(m.Subject, "$JS.") && n == 1 {
			return
		}
		on := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		if a, err := back.RequestMsg(on, time.Minute); err == nil {
			_ = front.PublishMsg(&nats.Msg{Subject: m.Reply, Header: a.Header, Data: a.Data})
		}
	}
	for _, subject := range []string{"$JS.API.>", "tallywheel.>"} {
		if _, err := front.Subscribe(subject, pass); err != nil {
			t.Fatal(err)
		}
	}
	if err := front.Flush(); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL(), func(subject string) int {
		mu.Lock()
		defer mu.Unlock()
		return all[subject]
	}
}

// A question that nobody answers is asked again, and ends no session.
func TestAsksAgain(t *testing.T) {
	w := newWorld(t, nil)
	var said testenv.Buffer
	w.told = &said
	url, asked := deafEar(t, w.url())
	w.cfg.Forward[0].URLs = []string{url}
	w.add(10, "a")
	w.forward()
	w.caughtUp()
	if s := said.String(); strings.Contains(s, "tried again") {
		t.Errorf("a session ended:\n%s", s)
	}
	for _, subject := range []string{"INFO.TALLYWHEEL", "CREATE.TALLYWHEEL", "MSG.GET.TALLYWHEEL"} {
		if n := asked("$JS.API.STREAM." + subject); n < 2 {
			t.Errorf("%s was asked %d times", subject, n)
		}
	}
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
}
