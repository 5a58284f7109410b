package stranger

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

var soakFor = flag.Duration("soak", 20*time.Second,
	"how long TestSoak lasts; from 30m on it also holds what the recorder takes to be flat")

// soakers are the sources of TestSoak.
var soakers = []scenario{
	{framing: "tally128", carrier: "pty", withFaults: true},
	{framing: "tally128", carrier: "tcp-all"},
	{framing: "modbus", carrier: "tcp-listen"},
	{framing: "cobs", carrier: "tcp-dial"},
	{framing: "cobs-crc", carrier: "tcp-all", withFaults: true},
	{framing: "slip-crc", carrier: "udp"},
	{framing: "line", carrier: "pty"},
	{framing: "nmea", carrier: "tcp-listen"},
	{framing: "length", carrier: "udp"},
	{framing: "raw", carrier: "tcp-dial"},
}

// TestSoak has everything at once for as long as -soak says: sources of every framing and carrier,
// senders that connect again and again, reloads, acknowledgements, readers of the API and its event
// streams, a webhook, a disk that is full and has room again, and a log that keeps 8 MiB. The books
// of each source are held against what its feeder knows. What the process takes is sampled; in a
// long run the last third must take what the second took.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: everything at once takes half a minute; run without -short")
	}
	o := newSoak(t, python(t))
	var looking sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for n := range 3 {
		looking.Go(func() { o.look(ctx, rand.New(rand.NewPCG(1, uint64(n)))) })
		looking.Go(func() { o.follow(ctx, []string{"events", "stream?from_seq=1", "stream?source=s4"}[n]) })
	}
	defer looking.Wait()
	defer cancel()
	long := *soakFor >= 10*time.Minute
	every := 2 * time.Second
	if long {
		every = time.Minute
	}
	for end, n := time.Now().Add(*soakFor), 0; time.Now().Before(end); n++ {
		next := time.Now().Add(every)
		o.disturb(n)
		time.Sleep(time.Until(next)) // this is load, not synchronisation
		o.sample()
	}
	cancel()
	looking.Wait()
	o.each("end")
	o.recorder.stop()
	for n, s := range o.sources {
		s.feeder.command("truth")
		o.judge(fmt.Sprintf("s%d", n), s)
	}
	t.Logf("%d answers, %d events and records followed, %d notified, %d reloads, %d times full, %d acknowledged",
		o.answers.Load(), o.followed.Load(), o.notified.Load(), o.reloads, o.fulls, o.acks)
	o.flat(long)
}

// soak is a stage with many sources.
type soak struct {
	*stage
	sources                      []*stage
	answers, followed, notified  atomic.Int64
	reloads, fulls, acks, storms int
	samples                      []usage
}

// usage is what the process takes at a moment.
type usage struct {
	rss, descriptors, threads, goroutines, cpu float64 // cpu: seconds so far
	at                                         time.Time
}

func newSoak(t *testing.T, python string) *soak {
	o := &soak{stage: newStage(t, scenario{seed: 7, framing: "line", frame: "line", carrier: "pty"})}
	smallDisk(o.stage)
	o.truncate()
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		o.notified.Add(1)
	}))
	t.Cleanup(hook.Close)
	for n, sc := range soakers {
		for _, f := range framings {
			if f.name == sc.framing {
				sc.frame = f.config
			}
		}
		sc.seed, sc.rate = uint64(1000+n), 20_000
		if *soakFor >= 10*time.Minute {
			sc.rate = 6000
		}
		s := newStage(t, sc)
		s.feeder = startFeeder(t, s, python)
		o.sources = append(o.sources, s)
	}
	o.cfg.sync, o.cfg.more = "batch, keep: {size: 8MiB, age: 30s}", fmt.Sprintf("notify: {webhook: %q}\n", hook.URL)
	o.configureAll()
	o.start()
	o.each("go")
	return o
}

// each has all feeders do something.
func (o *soak) each(word string) {
	for _, s := range o.sources {
		s.feeder.command(word)
	}
}

// configureAll has the configuration name all sources.
func (o *soak) configureAll() {
	o.cfg.others = nil
	for n, s := range o.sources {
		o.cfg.others = append(o.cfg.others,
			strings.Replace(s.source(), "id: x,", fmt.Sprintf("id: s%d, silent_after: 30s,", n), 1))
	}
}

func (o *soak) truncate() {
	if err := os.Truncate(filepath.Join(o.data, "filler"), 0); err != nil {
		o.t.Fatal(err)
	}
}

// disturb does what is due at turn n.
func (o *soak) disturb(n int) {
	s := o.sources[n%len(o.sources)]
	switch n % 5 {
	case 0, 2:
		s.feeder.command("storm")
		o.storms++
	case 1:
		s.cfg.overflow = []string{"block", "drop-oldest", "drop-newest"}[o.rng.IntN(3)]
		s.cfg.buffer = []string{"64KiB", "256KiB"}[o.rng.IntN(2)]
		s.quarantine = !s.quarantine
		o.configureAll()
		for m := range o.rng.IntN(3) {
			o.cfg.others = append(o.cfg.others,
				fmt.Sprintf("  - {id: absent-%d, serial: {port: %s/absent-%d}, frame: line}\n", m, o.dir, m))
		}
		o.reload()
		o.reloads++
	case 3:
		if *soakFor >= 10*time.Minute { // a log that is as large as it may be needs no more room: it has to shrink
			o.each("hush")
			time.Sleep(45 * time.Second)
		}
		o.takeDisk()
		o.each("go")
		testenv.Until(o.t, 5*time.Minute, "the disk is full", func() bool {
			var st status
			return o.recorder.get("api/v1/status", &st) && strings.Contains(st.Verdict, "the disk is full")
		})
		o.pause(100*time.Millisecond, 3*time.Second)
		o.truncate()
		o.fulls++
	case 4:
		resp, err := http.Post(o.recorder.url+"api/v1/ack", "application/json",
			strings.NewReader(`{"note": "it is known"}`))
		if err != nil {
			o.t.Error(err)
			return
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			o.t.Errorf("ack: %s", resp.Status)
		}
		o.acks++
	}
}

// look reads the API until ctx is done.
func (o *soak) look(ctx context.Context, rng *rand.Rand) {
	paths := []string{
		"", "api/v1/sheet", "api/v1/status", "api/v1/ports", "api/v1/losses", "api/v1/starts", "metrics", "healthz",
		"api/v1/records?limit=100", "api/v1/records?source=s1&contains=00&limit=10",
	}
	var client http.Client
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.recorder.url+paths[rng.IntN(len(paths))], nil)
		if err != nil {
			o.t.Error(err)
			return
		}
		if resp, err := client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			o.answers.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+rng.IntN(300)) * time.Millisecond):
		}
	}
}

// follow reads an event stream, a new one every 20 s, until ctx is done.
func (o *soak) follow(ctx context.Context, path string) {
	for ctx.Err() == nil {
		func() {
			one, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(one, http.MethodGet, o.recorder.url+"api/v1/"+path, nil)
			if err != nil {
				o.t.Error(err)
				return
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			for lines := bufio.NewReader(resp.Body); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "data:") {
					o.followed.Add(1)
				}
			}
		}()
		select { // if it is refused
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sample notes what the process takes now.
func (o *soak) sample() {
	resp, err := http.Get(o.recorder.url + "metrics")
	if err != nil {
		o.t.Errorf("the metrics cannot be read: %v", err)
		return
	}
	defer resp.Body.Close()
	u := usage{at: time.Now()}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if at := map[string]*float64{
			"process_resident_memory_bytes": &u.rss, "process_open_fds": &u.descriptors, "go_goroutines": &u.goroutines,
			"process_cpu_seconds_total": &u.cpu,
		}[name]; at != nil {
			*at, _ = strconv.ParseFloat(value, 64)
		}
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", o.recorder.Cmd.Process.Pid))
	if err != nil || u.rss == 0 {
		o.t.Errorf("what the process takes is unknown: %v, %+v", err, u)
	}
	u.threads = float64(len(tasks))
	o.samples = append(o.samples, u)
	if *soakFor >= 10*time.Minute {
		o.t.Logf("%2d: %.1f MiB, %.0f descriptors, %.0f threads, %.0f goroutines, CPU %.1f s",
			len(o.samples), u.rss/(1<<20), u.descriptors, u.threads, u.goroutines, u.cpu)
	}
}

// flat holds the last third of the samples against the second.
func (o *soak) flat(long bool) {
	n := len(o.samples) / 3
	if n == 0 {
		o.t.Fatal("there are no samples")
	}
	cpu := func(all []usage) float64 { // seconds a minute
		from, to := all[0], all[len(all)-1]
		return 60 * (to.cpu - from.cpu) / max(1, to.at.Sub(from.at).Seconds())
	}
	second, last := o.samples[n:2*n], o.samples[len(o.samples)-n:]
	for _, m := range []struct {
		what         string
		of           func(usage) float64
		ratio, extra float64 // what the last third may be more
	}{
		{"MiB resident", func(u usage) float64 { return u.rss / (1 << 20) }, 1.1, 8},
		{"descriptors", func(u usage) float64 { return u.descriptors }, 1.1, 8},
		{"threads", func(u usage) float64 { return u.threads }, 1, 4},
		{"goroutines", func(u usage) float64 { return u.goroutines }, 1.1, 8},
	} {
		a, b := mean(second, m.of), mean(last, m.of)
		o.t.Logf("%s: %.1f in the second third, %.1f in the last", m.what, a, b)
		if long && b > m.ratio*a+m.extra {
			o.t.Errorf("%s are not flat: %.1f, and then %.1f", m.what, a, b)
		}
	}
	a, b := cpu(second), cpu(last)
	o.t.Logf("CPU: %.2f s a minute in the second third, %.2f in the last", a, b)
	if long && b > 1.5*a {
		o.t.Errorf("the CPU time is not flat: %.2f s a minute, and then %.2f", a, b)
	}
}

func mean(all []usage, of func(usage) float64) (sum float64) {
	for _, u := range all {
		sum += of(u)
	}
	return sum / float64(len(all))
}

// judge holds the books of one source against its feeder's truth: bytes and valid frames. The log
// has thrown away what was stored first, so no frame is looked for.
func (o *soak) judge(id string, s *stage) {
	tr := s.readTruth()
	var acked, booked, unread, overrun, ok, valid, dropped, stored uint64
	for _, w := range tr.Wires {
		if acked += w.Acked; w.End == "HANGS" {
			o.t.Errorf("%s: a connection was never ended", id)
		}
	}
	for _, f := range tr.Frames {
		if f.Valid && f.Wire >= 0 && f.At+uint64(len(f.Data)/2) <= tr.Wires[f.Wire].Acked {
			valid++
		}
	}
	lines := json.NewDecoder(strings.NewReader(string(o.command("log", "sheets", "--json"))))
	for lines.More() {
		var sh startSheet
		if err := lines.Decode(&sh); err != nil {
			o.t.Fatal(err)
		}
		for _, p := range sh.Sheet.ports(id) {
			if len(p.Unbalanced) > 0 || p.Frames.InFlight > 0 || p.Bytes.Partial > 0 {
				o.t.Errorf("%s: the books do not balance at the end: %+v", p.ID, p)
			}
			booked += p.Bytes.Read
			ok += p.Frames.OK
			stored += p.Frames.Stored
			for _, n := range p.Unread {
				unread += n
			}
			for _, n := range p.Frames.Dropped {
				dropped += n
			}
			if p.Kernel != nil && p.Kernel.BufferOverrun != nil && s.carrier == "udp" {
				overrun += *p.Kernel.BufferOverrun
			}
		}
	}
	if s.carrier != "pty" {
		booked += unread
	}
	o.t.Logf("%s (%s by %s): %d bytes, %d frames, %d stored, %d dropped, %d datagrams over-run, %d bytes unread",
		id, s.framing, s.carrier, booked, ok, stored, dropped, overrun, unread)
	if overrun == 0 && booked != acked || booked > acked {
		o.t.Errorf("%s: %d bytes were acknowledged, %d are in the books", id, acked, booked)
	}
	if s.framing == "raw" { // chunks of any number of blocks
		return
	}
	if ok > valid || ok < valid && unread == 0 && ok+framesOfDatagram*overrun < valid || ok != stored+dropped {
		o.t.Errorf("%s: %d valid frames were acknowledged, %d are in the books, %d of them stored and %d dropped", id,
			valid, ok, stored, dropped)
	}
}

// takeDisk takes all that is left of the small disk, at once.
func (s *stage) takeDisk() {
	f, err := os.OpenFile(filepath.Join(s.data, "filler"), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for size := int64(diskSize); size > 0; size -= 64 << 10 {
		if syscall.Fallocate(int(f.Fd()), 0, 0, size) == nil {
			return
		}
	}
}
