package loadgen

import (
	"bytes"
	"crypto/tls"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tallywheel/tallywheel/internal/http1"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
)

// thread drives a share of the connections by epoll.
type thread struct {
	cfg    *Config
	to     netip.AddrPort
	dialer *dialer  // nil: connections are made by the thread itself
	bursts [][]byte // of each exchange, Pipeline requests
	began  time.Time
	length time.Duration
	now    time.Duration // since began
	over   bool          // send no more
	once   bool          // one request on each connection
	epoll  *sys.Epoll
	conns  []*conn
	idle   []*conn // open loop: without a request
	users  users   // closed loop: those that think
	random *rand.Rand
	polls  polls
	asked  []asked // closed loop: in this turn
	unread []asked // TLS: may have more to read, of which no event tells
	spare  []asked // memory for the next of unread
	buf    []byte
	looked time.Duration // for answers that do not come
	warmup time.Duration // what is left of it; 0: what is due counts
	moved  time.Duration // the last time that bytes came or went

	interval float64       // open loop: between requests of this thread, in nanoseconds
	behind   float64       // the first thread, in intervals
	asks     int           // sent of those that are due
	early    time.Duration // before that the wait for it ends, as waits end late

	latency  *hdrhistogram.Histogram
	seconds  seconds
	answered uint64
	late     uint64
	unsent   uint64
	atLeast  uint64
	received uint64
	sent     uint64
	statuses [1000]uint64
	made     uint64
	errors   map[string]int
	counted  time.Duration

	lastAnswer time.Duration
}

// conn is a connection.
type conn struct {
	fd      int
	tls     *tls.Conn // nil: it has none
	wire    *wire     // … below it
	opening bool      // it is being made
	waits   bool      // for the socket to take more
	made    int       // connections so far: a descriptor's number can be the last one's
	index   int
	due     []time.Duration // of the requests that are not answered, oldest first
	sent    time.Duration   // when the newest of them began to be
	unsent  []byte
	partial []byte // of an answer
	skip    int64  // bytes of a body still to come
	chunked bool   // … that is chunked
	chunks  http1.Chunks
	toEnd   bool          // the body goes on until the server closes
	last    bool          // the server closes behind the answer
	bare    bool          // answers have no body, whatever their heads say
	status  int           // of the answer whose body is coming
	next    int           // the exchange to send
	want    *Content      // of the answers to what was sent; nil: anything
	got     int64         // bytes of the body that is coming
	closes  int           // Config.Close: the status of the answer behind which the server has yet to close; else 0
	unread  bool          // it is among the thread's unread
	begun   time.Duration // it began to be made
	fresh   bool          // nothing has been asked on it
	pauses  bool          // it is not there, and is made again …
	retryAt time.Duration // … not before that
	failed  error         // why it was not made
	down    bool          // … and it has not been since
	tried   bool          // it has sent in this run
	user    userState
}

func newThread(cfg *Config, to netip.AddrPort, requests [][]byte, index int) (*thread, error) {
	t := &thread{
		cfg: cfg, to: to, buf: make([]byte, 256<<10), random: rand.New(rand.NewPCG(uint64(index), 1)),
		errors: map[string]int{},
	}
	for _, r := range requests {
		if cfg.Pipeline > 1 {
			r = bytes.Repeat(r, cfg.Pipeline)
		}
		t.bursts = append(t.bursts, r)
	}
	if cfg.Rate > 0 {
		t.interval = 1e9 * float64(cfg.Threads) / cfg.Rate
	}
	var err error
	if t.epoll, err = sys.NewEpoll(512); err != nil {
		return nil, err
	}
	for i := index; i < cfg.Connections; i += cfg.Threads {
		t.conns = append(t.conns,
			&conn{fd: -1, index: len(t.conns), next: i % len(requests), bare: cfg.Method == http.MethodHead})
	}
	if cfg.TLS != nil {
		if t.dialer, err = newDialer(cfg, to, len(t.conns)); err == nil {
			err = t.epoll.Add(t.dialer.news, sys.Readable, uint64(len(t.conns)))
		}
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *thread) close() {
	for _, c := range t.conns {
		c.shut()
	}
	if t.dialer != nil {
		t.dialer.close()
	}
	_ = t.epoll.Close()
}

// reset makes the thread ready for a run.
func (t *thread) reset(began time.Time, warmup, length time.Duration, index int) {
	t.began, t.warmup, t.length, t.over, t.looked = began, warmup, warmup+length, false, 0
	t.users, t.idle = t.users[:0], t.idle[:0]
	t.behind, t.asks = float64(index)/float64(t.cfg.Threads), 0
	t.clear()
	for _, c := range t.conns {
		c.tried, c.sent, c.begun, c.retryAt, c.user = false, 0, -retryAfter, 0, asks // one being made has its time anew
	}
}

// warmedUp ends the warm-up: the time that counts begins, which goes on as before. Moments before
// it are negative from then on, and what was due by then is not counted.
func (t *thread) warmedUp() {
	d := t.warmup
	t.warmup, t.began, t.length = 0, t.began.Add(d), t.length-d
	t.now, t.looked, t.moved = t.now-d, t.looked-d, t.moved-d
	if t.interval > 0 {
		t.behind, t.asks = t.behind+float64(t.asks)-float64(d)/t.interval, 0
	}
	for i := range t.users {
		t.users[i].at -= d
	}
	for _, c := range t.conns {
		c.sent, c.begun, c.retryAt = c.sent-d, c.begun-d, c.retryAt-d
		for i := range c.due {
			c.due[i] -= d
		}
	}
	t.clear()
}

// clear begins the counts anew.
func (t *thread) clear() {
	t.latency, t.errors, t.seconds = newHistogram(), map[string]int{}, seconds{}
	t.answered, t.late, t.unsent, t.atLeast, t.received, t.sent, t.counted, t.lastAnswer = 0, 0, 0, 0, 0, 0, 0, 0
	t.statuses, t.made = [1000]uint64{}, 0
}

// run sends until the time is over.
func (t *thread) run(stop <-chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = rt.SetTimerSlack(1) // waits end when they should, not up to 50 µs later; without it the load is only less even
	if t.cfg.RealTime {
		if before, err := rt.GetScheduling(0); err == nil && rt.SetScheduling(realTime) == nil {
			before.ResetOnFork = true                       // only a privileged thread may take that back
			defer func() { _ = rt.SetScheduling(before) }() // the thread will be another goroutine's
		}
	}
	t.tick()
	for _, c := range t.conns {
		switch {
		case t.length <= 0:
		case t.cfg.ThinkMax > 0 && len(c.due) == 0:
			t.think(c, 0) // so that they are not in step
		case c.opening:
		case c.fd < 0:
			t.connect(c)
		case len(c.due) > 0:
		case t.interval > 0:
			t.idle = append(t.idle, c)
		default:
			t.sendBurst(c)
		}
	}
	for !t.over {
		select {
		case <-stop:
			t.length = min(t.length, t.now)
		default:
		}
		if t.warmup > 0 && t.now >= t.warmup {
			t.warmedUp()
		}
		if t.interval > 0 {
			t.sendDue() // also at the end, of which a thread that waits for what is due may learn with that
		}
		if t.over = t.now >= t.length || t.once && int(t.answered)+t.failures() >= len(t.conns)*t.cfg.Pipeline; t.over {
			break
		}
		t.tick() // to read and to send has taken its time, by which the next would be late
		until := min(t.length, t.now+t.lookEvery())
		if t.warmup > 0 {
			until = min(until, t.warmup)
		}
		if t.interval > 0 && len(t.idle) > 0 {
			until = min(until, t.due()-t.early)
		}
		if len(t.users) > 0 {
			until = min(until, t.users[0].at)
		}
		if !t.turn(max(until-t.now, 0)) {
			break
		}
		t.wakeUsers()
		t.lookForLost()
	}
	if t.warmup > 0 { // it was stopped before anything counts
		t.warmup = t.now
		t.warmedUp()
		t.length = 0
	}
	t.over, t.counted = true, t.now
	t.leaveUnsent()
	t.rest(stop)
}

func (t *thread) record(d time.Duration) int64 {
	us := min(max(int64(d/time.Microsecond), lowest), highest)
	_ = t.latency.RecordValue(us) // in range
	return us
}

// failures is how many requests had no good answer.
func (t *thread) failures() (n int) {
	for _, k := range t.errors {
		n += k
	}
	return n
}

// down is how many connections could not be made again.
func (t *thread) down() (n int) {
	for _, c := range t.conns {
		if c.down {
			n++
		}
	}
	return n
}

// turn waits for the kernel once, and does what it says.
func (t *thread) turn(wait time.Duration) bool {
	if len(t.unread) > 0 {
		wait = 0
	}
	began := t.now
	n, err := t.wait(wait)
	t.tick()
	if n == 0 && wait > 0 {
		t.learn(t.now - began - wait)
	}
	if err != nil {
		t.errors[err.Error()]++
		return false
	}
	for i := range n {
		events, id := t.epoll.Event(i)
		if id == uint64(len(t.conns)) {
			t.takeDialled()
		} else if c := t.conns[id]; c.fd >= 0 {
			t.ready(c, events)
		}
	}
	t.readOn()
	for _, a := range t.asked {
		if c := a.c; c.fd >= 0 && c.made == a.made { // else it was lost meanwhile
			t.goOn(c)
		}
	}
	t.asked = t.asked[:0]
	return true
}

// asked is a connection whose answers have all come. It sends when all that has come is read, as a
// server does more at a time for requests that come together.
type asked struct {
	c    *conn
	made int
}

// wait waits for events, for as long at most. Where every answer is followed by a request at once,
// it looks for some time before it sleeps. It keeps its P for the first [keepsFor] of the sleep: to
// give it away and to get it back takes longer than most answers do.
func (t *thread) wait(most time.Duration) (n int, err error) {
	if most > 0 && t.interval == 0 && t.cfg.ThinkMax == 0 && t.polls.worthIt() {
		for end := t.now + min(most, pollFor); n == 0 && err == nil && t.now < end; t.tick() {
			if n, err = t.epoll.WaitRaw(0); n == 0 {
				sys.Yield() // the server may wait for this CPU
			}
		}
		if t.polls.ended(n > 0); n > 0 || err != nil {
			return n, err
		}
	}
	if t.dialer == nil && t.interval == 0 { // the goroutines of a dialer need the P
		brief := min(most, keepsFor)
		if n, err = t.epoll.WaitBriefly(brief); n > 0 || err != nil || most <= keepsFor {
			return n, err
		}
		most -= brief
	}
	return t.epoll.WaitFor(most)
}

// keepsFor bounds how long others wait for a P, as who stops the run. After so long the runtime's
// monitor would interrupt the wait in any case.
const keepsFor = 10 * time.Millisecond

// ended reports whether nothing new is begun: the time is over, also where the turn that it ends in
// is not.
func (t *thread) ended() bool { return t.over || t.now >= t.length }

func (t *thread) tick() { t.now = time.Since(t.began) }

func (t *thread) sendBurst(c *conn) {
	now := time.Since(t.began) // and not t.now: many answers may have been read since
	for range t.cfg.Pipeline {
		c.due = append(c.due, now)
	}
	t.sendNext(c)
}

// sendNext sends the connection's next exchange, and remembers what must come back.
func (t *thread) sendNext(c *conn) {
	i := c.next
	c.next, c.want, c.sent, c.tried, c.fresh = (i+1)%len(t.bursts), nil, t.now, true, false
	if want := &t.cfg.Exchanges[i].Want; want.Pattern != nil {
		c.want = want
	}
	t.send(c, t.bursts[i])
}

func (t *thread) send(c *conn, b []byte) {
	n, whole, err := c.write(b)
	if err != nil {
		t.lost(c, "reset")
		return
	}
	if n > 0 {
		t.moved = t.now
		t.sent += uint64(n)
	}
	if !whole {
		c.unsent, c.waits = b[n:], true
		_ = t.epoll.Set(c.fd, sys.Readable|sys.Writable, uint64(c.index))
	}
}

func (t *thread) ready(c *conn, events uint32) {
	if c.opening {
		if err := sys.SocketError(c.fd); err != nil {
			t.notMade(c, "connect", err)
		} else if events&sys.Writable != 0 {
			_ = t.epoll.Set(c.fd, sys.Readable, uint64(c.index))
			t.opened(c)
		}
		return
	}
	if events&sys.Writable != 0 && c.waits {
		b := c.unsent
		c.unsent, c.waits = nil, false
		_ = t.epoll.Set(c.fd, sys.Readable, uint64(c.index))
		if t.send(c, b); c.fd < 0 {
			return
		}
	}
	if events&(sys.Readable|sys.Gone) == 0 {
		return
	}
	t.read(c)
}

// receive reads once. It reports whether more may be there that no event will tell.
func (t *thread) receive(c *conn) (more bool) {
	n, err := c.read(t.buf)
	switch {
	case err == errAgain:
		return false
	case err != nil:
		t.lost(c, "reset")
		return false
	case n == 0 && c.closes > 0:
		t.count(c, c.closes)
		t.renew(c)
		return false
	case n == 0 && c.toEnd && c.isCutOff():
		t.lost(c, cutOff)
		return false
	case n == 0 && c.toEnd && len(c.due) > 0:
		t.endOf(c)
		return false
	case n == 0:
		t.lost(c, "closed")
		return false
	}
	t.moved = t.now
	t.received += uint64(n)
	t.take(c, t.buf[:n])
	return c.tls != nil
}

// unasked is the kind of error for what comes where no answer is due: of one that came before its
// request nobody knows what it answers.
const unasked = "answer without a request"

// take reads the answers in what has come, and sends the next request behind the last of them.
func (t *thread) take(c *conn, b []byte) {
	if len(c.partial) > 0 {
		c.partial = append(c.partial, b...)
		b = c.partial
	}
	for len(b) > 0 {
		switch {
		case c.closes > 0:
			t.lost(c, "more than the answer")
			return
		case len(c.due) == 0:
			t.errors[unasked]++
			t.renew(c)
			return
		}
		used, whole, bad := c.answer(b)
		if bad != "" {
			t.lost(c, bad)
			return
		}
		b = b[used:]
		if used == 0 {
			break
		}
		if whole == 0 { // the rest is to come, or the answer behind one of 1xx is here
			continue
		}
		if !t.done(c, whole) {
			return
		}
	}
	c.partial = append(c.partial[:0], b...)
	if len(c.due) == 0 {
		t.ask(c)
	}
}

// ask has a connection whose answers have all come be used again.
func (t *thread) ask(c *conn) {
	switch {
	case t.interval > 0:
		t.idle = append(t.idle, c)
	case !t.ended() && !t.once:
		t.asked = append(t.asked, asked{c, c.made})
	}
}

// stillAsks reports whether the oldest request has not been sent whole. Of requests that are
// pipelined the first are answered while the last wait for the socket. Of the very last one TLS may
// hold the end, which is not in c.unsent any more.
func (t *thread) stillAsks(c *conn) bool {
	size := len(t.bursts[0]) / t.cfg.Pipeline // of each, for what is pipelined is one exchange
	return c.waits && len(c.due) <= max(1, (len(c.unsent)+size-1)/size)
}

// done counts an answer. It reports whether the connection goes on.
func (t *thread) done(c *conn, status int) (goesOn bool) {
	switch {
	case t.stillAsks(c): // what is left of the request would be taken for the next one
		t.lost(c, "answered before the request was sent: "+kindOfStatus(status))
		return false
	case t.cfg.Close:
		c.closes = status
		return true
	}
	t.count(c, status)
	if c.last {
		t.lost(c, "closed")
		return false
	}
	return true
}

// count counts the answer to the oldest request.
func (t *thread) count(c *conn, status int) {
	due := c.due[0]
	c.due = c.due[:copy(c.due, c.due[1:])]
	if due < 0 {
		return
	}
	t.lastAnswer = t.now
	t.statuses[status]++
	if status >= 400 {
		t.failed(kindOfStatus(status), due)
		if !t.over {
			t.seconds.fail(int(t.now / time.Second))
		}
		return
	}
	us := t.record(t.now - due)
	if t.over {
		t.late++
		return
	}
	t.answered++
	t.seconds.record(int(t.now/time.Second), us)
}

// endOf is the end of a connection that was the end of an answer, too.
func (t *thread) endOf(c *conn) {
	_, status, bad := c.ended(0)
	switch {
	case bad != "":
		t.lost(c, bad)
		return
	case t.stillAsks(c):
		t.lost(c, "answered before the request was sent: "+kindOfStatus(status))
		return
	}
	t.count(c, status)
	t.lost(c, "closed")
}
