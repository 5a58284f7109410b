// Package notify tells others of events: by a request to a web server, or by a command.
//
// # Guarantees
//
// [Teller.Tell] never waits: an event goes into a queue with a bound, from which a goroutine takes
// it. When the queue is full the oldest event goes, and is counted. An event that cannot be
// delivered is tried again, after one second at first and then less and less often, and is given
// up after [MaxTries]; those behind it wait, so events come in their order. What [Teller.Close]
// leaves, or a kill, is in [Teller.Unsent], and another Teller goes on with it: an event may come
// twice. A command has a time limit, and is killed with its process group. What it has started in a
// session of its own (setsid) is not in that, and stays.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Event is one beginning or end of a trouble.
type Event struct {
	Event   string    `json:"event"` // begin or end
	Trouble string    `json:"trouble"`
	Level   string    `json:"level"`   // of the trouble: watch or bad
	Text    string    `json:"text"`    // one line, for people
	Sources []string  `json:"sources"` // those that have it; none: it is of the log, or of all
	Count   uint64    `json:"count"`   // what was counted since the trouble began, in Unit; 0: it is a state
	Unit    string    `json:"unit"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"` // end: how long the trouble lasted
	Host    string    `json:"host"`
}

// Bounds.
const (
	MaxTries   = 10          // of one event
	firstWait  = time.Second // before the second try; each further wait is twice as long
	longest    = time.Minute
	maxOutput  = 1 << 10         // bytes of what a command or a server says that are told
	afterKill  = 2 * time.Second // how long the output of a killed command is waited for
	closeLimit = 3 * time.Second // how long Close delivers what waits

	MaxUnsent = 64 // events of each of the two that another Teller goes on with, at most: the newest
)

// Config says who is told.
type Config struct {
	Webhook string        // a URL that events are sent to by POST; "": none
	Command []string      // a program and its arguments, with the event on its standard input; empty: none
	Timeout time.Duration // of one try
	Queue   int           // events that wait, at most, for each of the two
	Log     *slog.Logger
	Unsent  Unsent // of a Teller before this
}

// Unsent is events that were not delivered, the oldest first, by who was to be told: webhook or
// command.
type Unsent map[string][]json.RawMessage

// Counts is what became of events.
type Counts struct {
	Sent    uint64 // delivered
	Failed  uint64 // given up
	Dropped uint64 // taken out of a full queue
}

// Teller tells those that its Config names. A nil one tells nobody.
type Teller struct{ posts []*post }

// New begins to tell; nil if nobody is to be told.
func New(c Config) *Teller {
	t := &Teller{}
	if c.Webhook != "" {
		t.posts = append(t.posts, newPost("webhook", c, (&webhook{url: c.Webhook}).send))
	}
	if len(c.Command) > 0 {
		t.posts = append(t.posts, newPost("command", c, command(c.Command).run))
	}
	for _, by := range slices.Sorted(maps.Keys(c.Unsent)) {
		if !slices.ContainsFunc(t.posts, func(p *post) bool { return p.name == by }) {
			c.Log.Warn("events of an earlier start are delivered to nobody, for the configuration has no such receiver any more",
				"by", by, "events", len(c.Unsent[by]))
		}
	}
	if len(t.posts) == 0 {
		return nil
	}
	return t
}

// Tell queues an event for all.
func (t *Teller) Tell(e Event) {
	if t == nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic("notify: an event that is no JSON: " + err.Error())
	}
	for _, p := range t.posts {
		p.put(append(b, '\n'))
	}
}

// Counts says what became of events, by who was told: webhook or command.
func (t *Teller) Counts() map[string]Counts {
	all := map[string]Counts{}
	if t != nil {
		for _, p := range t.posts {
			p.mu.Lock()
			all[p.name] = p.counts
			p.mu.Unlock()
		}
	}
	return all
}

// Unsent is what is not delivered, and not given up.
func (t *Teller) Unsent() Unsent {
	if t == nil {
		return nil
	}
	all := Unsent{}
	for _, p := range t.posts {
		if left := p.left(); len(left) > 0 {
			all[p.name] = left[max(0, len(left)-MaxUnsent):]
		}
	}
	return all
}

// Close delivers what waits, for three seconds at most, and ends. It says in the journal how much
// is left.
func (t *Teller) Close() {
	if t == nil {
		return
	}
	var all sync.WaitGroup
	for _, p := range t.posts {
		all.Go(p.close)
	}
	all.Wait()
}

// post is the queue of one who is told.
type post struct {
	name    string
	timeout time.Duration
	size    int
	send    func(context.Context, []byte) error
	log     *slog.Logger
	ctx     context.Context // of tries; canceled when Close has waited enough
	cancel  context.CancelFunc
	hurry   chan struct{} // closed by Close: waits between tries end
	done    chan struct{}

	mu     sync.Mutex
	now    []byte // on its way; nil: nothing is
	queue  [][]byte
	news   chan struct{}
	closed bool
	counts Counts
}

func newPost(name string, c Config, send func(context.Context, []byte) error) *post {
	p := &post{
		name: name, timeout: c.Timeout, size: c.Queue, send: send, log: c.Log, hurry: make(chan struct{}),
		done: make(chan struct{}),
		news: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, b := range c.Unsent[name] {
		var line bytes.Buffer
		if err := json.Compact(&line, b); err != nil {
			panic("notify: an event that is no JSON: " + err.Error())
		}
		p.put(append(line.Bytes(), '\n'))
	}
	go p.run()
	return p
}

func (p *post) put(b []byte) {
	p.mu.Lock()
	if len(p.queue) >= p.size {
		p.queue = p.queue[1:]
		p.counts.Dropped++
	}
	p.queue = append(p.queue, b)
	p.mu.Unlock()
	p.wake()
}

func (p *post) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// take is the oldest event that waits; over: there will be none any more.
func (p *post) take() (b []byte, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil, p.closed
	}
	b, p.queue = p.queue[0], p.queue[1:]
	p.now = b
	return b, false
}

// left is what is not delivered, and not given up.
func (p *post) left() (all []json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		all = append(all, bytes.TrimSpace(p.now))
	}
	for _, b := range p.queue {
		all = append(all, bytes.TrimSpace(b))
	}
	return all
}

func (p *post) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.hurry)
	p.wake()
	defer time.AfterFunc(closeLimit, p.cancel).Stop()
	<-p.done
	p.cancel()
	if n := len(p.left()); n > 0 {
		p.log.Warn(fmt.Sprintf("events were not delivered: the next start sends them, the newest %d at most",
			MaxUnsent), "by", p.name, "events", n)
	}
}

func (p *post) run() {
	defer close(p.done)
	ill := false
	for {
		b, over := p.take()
		switch {
		case over:
			return
		case b == nil:
			<-p.news
			continue
		}
		err := p.deliver(b, &ill)
		if !p.settle(err) {
			return
		}
		if err != nil {
			var e Event
			_ = json.Unmarshal(b, &e) // one of an earlier start may be of another program
			p.log.Error("an event is given up", "by", p.name, "event", e.Event, "trouble", e.Trouble, "error", err)
		}
	}
}

// settle counts what became of the event on its way. With false it stays there, and those behind it
// wait, too: for another Teller, as this one closes.
func (p *post) settle(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.counts.Sent++
	case p.closed && !errors.As(err, &permanent{}):
		return false
	default:
		p.counts.Failed++
	}
	p.now = nil
	return true
}

// permanent marks an error that no further try can mend.
type permanent struct{ error }

// deliver tries until it is delivered or given up. ill is whether the last try failed: the journal
// is told when that begins, and when it ends.
func (p *post) deliver(b []byte, ill *bool) (err error) {
	wait := firstWait
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(p.ctx, p.timeout)
		err = p.send(ctx, b)
		cancel()
		if err == nil {
			if *ill {
				p.log.Info("notifying works again", "by", p.name)
			}
			*ill = false
			return nil
		}
		if !*ill {
			p.log.Warn("cannot notify; events wait, and the oldest go when the queue is full", "by", p.name, "error",
				err)
		}
		*ill = true
		if errors.As(err, &permanent{}) || try == MaxTries || p.ctx.Err() != nil {
			return err
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-p.hurry: // the last try
			try = MaxTries - 1
		}
		pause.Stop()
		wait = min(2*wait, longest)
	}
}

type webhook struct{ url string }

// send posts an event. An answer of 2xx is a success, 408, 429 and 5xx are tried again. Redirects
// are not followed: they would make a GET of it.
func (w *webhook) send(ctx context.Context, b []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(b))
	if err != nil {
		return permanent{errors.New("the webhook is no URL")}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tallywheel")
	client := http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}, // events are rare
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		var all *url.Error // its words begin with the whole URL
		if errors.As(err, &all) {
			err = all.Err
		}
		return fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxOutput)) // for the journal only
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("%s answers %s: %s", req.URL.Host, resp.Status, without(strings.TrimSpace(string(said)), w.url))
	if c := resp.StatusCode; c < 500 && c != http.StatusRequestTimeout && c != http.StatusTooManyRequests {
		return permanent{err}
	}
	return err
}

type command []string

// run runs the command with an event on its standard input.
func (c command) run(ctx context.Context, b []byte) error {
	cmd := exec.CommandContext(ctx, c[0], c[1:]...)
	var said beginning
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(b), &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = afterKill
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left running; most often nothing is
	}
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%s was killed after its time: %w", c[0], err)
	}
	if err != nil && len(said.b) > 0 {
		err = fmt.Errorf("%w: %s", err, without(strings.TrimSpace(string(said.b)), c[1:]...))
	}
	return err
}

// shortestSecret is how long a part of a URL is that may be a secret, in bytes. A password is one
// in any case.
const shortestSecret = 8

// without takes out of a text what may be a secret of URLs: the address of a webhook is the
// password to it, and whoever answers, or a command, may repeat it.
func without(text string, urls ...string) string {
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			continue
		}
		word, _ := u.User.Password()
		if word != "" {
			text = strings.ReplaceAll(text, word, "…")
		}
		rest := strings.Join([]string{u.User.Username(), u.Path, u.EscapedPath(), u.RawQuery}, "/")
		for _, p := range strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("/&=", r) }) {
			if len(p) >= shortestSecret {
				text = strings.ReplaceAll(text, p, "…")
			}
		}
	}
	return text
}

// beginning keeps the beginning of what a command says.
type beginning struct{ b []byte }

func (t *beginning) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), maxOutput-len(t.b))]...)
	return len(b), nil
}
