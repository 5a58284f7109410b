package loadgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/uring"
)

// HoldConfig says which connections to hold. URL and Connections must be set. Every answer must
// have status 200, a Content-Length, and the length of the first one with its head: one of another
// length ends its connection.
type HoldConfig struct {
	URL string // http://ADDRESS:PORT/path; the address is a number
	// so many addresses from that one upward share the connections: past some 2,000 to one,
	// connecting gets slow. 0: 1
	Spread      int
	Connections int           // 1 to 4,000,000
	Every       time.Duration // between requests of a connection; 0: 1 min
	Duration    time.Duration // how long, once all are open; 0: Every
	// for a connection with its first answer, and for the answers that are still awaited at the
	// end; 0: 10 s
	Timeout time.Duration

	inFlight int // operations of a ring, besides those that only look; 0: mostInFlight
}

// Held is what came of it.
type Held struct {
	Connections  int     `json:"connections"`  // open at the end
	OpenSeconds  float64 `json:"open_seconds"` // until all were open and had had an answer
	OpenPerSec   float64 `json:"open_per_second"`
	Seconds      float64 `json:"seconds"`
	Requests     uint64  `json:"requests"`       // answered while they were held
	Failed       uint64  `json:"failed"`         // not answered, or by a connection that has ended
	Late         uint64  `json:"late"`           // sent more than 10 ms after they were due
	BytesPerConn float64 `json:"bytes_per_conn"` // of this process's memory
	LatencyUs    Latency `json:"latency_us"`     // from when a request was due
}

// Limits of a hold.
const (
	maxHeld = 4_000_000
	// connections of a ring: its table may have as many slots as RLIMIT_NOFILE says, 20,000 in many
	// places
	perHolder = 16_000
	opening   = 64 // connections of a ring that are made at a time
	// mostInFlight is some 4,000 requests that are not answered. Where more are due, they wait.
	mostInFlight = 4096
	kernelMost   = 20 << 10
	lateAfter    = 10 * time.Millisecond
)

// Hold opens connections, and has each send a request every so often: what many clients do that are
// connected and mostly silent. Connections are direct descriptors of rings, which no limit of
// descriptors counts: it needs io_uring with sockets (Linux 5.19). It returns when the time is
// over, or ctx ends, with what there is.
func Hold(ctx context.Context, cfg HoldConfig) (*Held, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	to, request, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if err := roomFor(ctx, cfg.Connections); err != nil {
		return nil, err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	before := resident()
	n := (cfg.Connections + perHolder - 1) / perHolder
	all := make([]*holder, n)
	errs := make([]error, n)
	var opened, ended sync.WaitGroup
	opened.Add(n)
	start := make(chan time.Time, n)
	began := time.Now()
	for i := range all {
		lo, hi := cfg.Connections*i/n, cfg.Connections*(i+1)/n
		h := &holder{cfg: &cfg, ctx: ctx, request: uring.Wrap(bytes.Clone(request)), latency: newHistogram()}
		all[i] = h
		ended.Go(func() {
			runtime.LockOSThread() // its ring's; it ends with this goroutine
			open := sync.OnceFunc(opened.Done)
			defer open()
			errs[i] = h.hold(to, lo, hi, func() time.Time {
				open()
				return <-start
			})
			if errs[i] != nil {
				giveUp(errOther)
			}
		})
	}
	opened.Wait()
	r := &Held{OpenSeconds: time.Since(began).Seconds()}
	r.BytesPerConn = float64(resident()-before) / float64(cfg.Connections)
	held := time.Now()
	for range n {
		start <- held // one that has failed does not come for it
	}
	ended.Wait()
	return r, r.gather(&cfg, all, errs, held)
}

// errOther ends the holders beside one that has failed: what they hold is not what was asked for.
var errOther = errors.New("load: hold: another ring has failed")

func (r *Held) gather(cfg *HoldConfig, all []*holder, errs []error, began time.Time) error {
	r.Seconds = min(time.Since(began), cfg.Duration).Seconds()
	latency := newHistogram()
	made := 0
	for _, h := range all {
		r.Connections += h.open
		made += h.made
		r.Requests += h.answered
		r.Failed += h.failed
		r.Late += h.late
		latency.Merge(h.latency)
	}
	r.OpenPerSec = float64(made) / r.OpenSeconds
	r.LatencyUs = latencyOf(latency)
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, errOther) })...)
}

// check fills in what is left out, and returns the addresses and the request.
func (c *HoldConfig) check() (to []netip.AddrPort, request []byte, err error) {
	wrong := func(format string, args ...any) error {
		return configError{fmt.Errorf("load: hold: "+format, args...)}
	}
	var first netip.AddrPort
	u, err := url.Parse(c.URL)
	if err == nil {
		first, err = netip.ParseAddrPort(u.Host)
	}
	if err != nil || u.Scheme != "http" || first.Port() == 0 {
		return nil, nil, wrong("%q: want http://ADDRESS:PORT/path, with an address that is a number", c.URL)
	}
	if c.Spread == 0 {
		c.Spread = 1
	}
	if c.Every == 0 {
		c.Every = time.Minute
	}
	if c.Duration == 0 {
		c.Duration = c.Every
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.inFlight == 0 {
		c.inFlight = mostInFlight
	}
	switch {
	case c.Connections < 1 || c.Connections > maxHeld:
		return nil, nil, wrong("%d connections: want 1 to %d", c.Connections, maxHeld)
	case first.Addr().Zone() != "":
		return nil, nil, wrong("%v: want an address without a zone", first.Addr())
	case !onWire(u.RequestURI()):
		return nil, nil, wrong("%q: want %%20 for a space", c.URL)
	case c.Spread < 1 || c.Spread > 1<<16:
		return nil, nil, wrong("%d addresses: want 1 to %d", c.Spread, 1<<16)
	case min(c.Every, c.Duration, c.Timeout) < 0 || max(c.Every, c.Duration, c.Timeout) > maxTime:
		return nil, nil, wrong("a time is negative, or longer than %v", maxTime)
	}
	for a := first.Addr(); len(to) < c.Spread; a = a.Next() {
		if !a.IsValid() {
			return nil, nil, wrong("there are no %d addresses from %v upward", c.Spread, first.Addr())
		}
		to = append(to, netip.AddrPortFrom(a, first.Port()))
	}
	if each := c.Connections / c.Spread; each > maxConnections {
		return nil, nil,
			wrong("%d connections to one address: a client has no more than %d ports; spread them over more", each,
				maxConnections)
	}
	request = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", u.RequestURI(), u.Host)
	return to, request, nil
}

// roomFor says what this machine lacks for so many connections, both ends of which may be here.
func roomFor(ctx context.Context, connections int) error {
	if b, err := os.ReadFile("/proc/sys/fs/file-max"); err == nil {
		files, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && files < 2*connections+10_000 {
			return fmt.Errorf("load: hold: %d connections have two files each, and fs.file-max is %d; sysctl fs.file-max=%d", connections, files, 2*connections+100_000)
		}
	}
	free, err := roomComes(ctx, int64(connections)*kernelMost, available)
	if err == nil && free < int64(connections)*kernelMost && free > 0 {
		err = fmt.Errorf("load: hold: %d connections take up to %d MiB of memory, of which %d are available; hold fewer", connections, connections*kernelMost>>20, free>>20)
	}
	return err
}

// The kernel frees the sockets of a process that has ended one after the other, a million of them
// for half a minute: there is room to come as long as the memory grows.
const (
	freeing     = 10 // looks without growth until it is taken for all
	freeingTick = 100 * time.Millisecond
)

// roomComes waits until so many bytes are available, or no more come, and returns what is; 0: it is
// not known.
func roomComes(ctx context.Context, want int64, available func() int64) (free int64, err error) {
	free = available()
	for looks := freeing; 0 < free && free < want && looks > 0; looks-- {
		select {
		case <-ctx.Done():
			return free, ctx.Err()
		case <-time.After(freeingTick):
		}
		if now := available(); now > free {
			free, looks = now, freeing+1
		}
	}
	return free, nil
}

// available is the memory that may be taken, in bytes; 0: it is not known.
func available() int64 {
	b, _ := os.ReadFile("/proc/meminfo")
	return kilobytes(b, "MemAvailable:")
}

// kilobytes is the figure behind a name in a file of /proc, in bytes; 0: it is not there.
func kilobytes(file []byte, name string) int64 {
	_, rest, _ := strings.Cut(string(file), name)
	var kb int64
	_, _ = fmt.Sscan(rest, &kb) // 0 is what is said above
	return kb << 10
}

// resident is this process's own memory in bytes.
func resident() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	return kilobytes(b, "RssAnon:")
}
