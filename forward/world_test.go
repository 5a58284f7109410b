package forward

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// serverRole is set for a test binary that is to be a NATS server: a role in JSON.
const serverRole = "TALLYWHEEL_TEST_NATS"

// role is what such a server is.
type role struct {
	Port   int
	Dir    string
	Name   string   // of one in a cluster; "": it is alone
	Route  int      // port for the others
	Routes []string // to the others
	Log    string   // file
}

// command runs the test binary as such a server.
func (r role) command(t *testing.T) *exec.Cmd {
	self, err := os.Executable()
	text, jsonErr := json.Marshal(r)
	if err = errors.Join(err, jsonErr); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), serverRole+"="+string(text))
	return c
}

func TestMain(m *testing.M) {
	if text := os.Getenv(serverRole); text != "" {
		if err := beServer(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	testenv.CleanUp()
	os.Exit(code)
}

// beServer serves until it is killed.
func beServer(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	o := serverOptions(r.Dir)
	o.Port = r.Port
	if r.Name != "" {
		o.ServerName = r.Name
		// others come by the routes alone
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: r.Route, NoAdvertise: true}
		for _, text := range r.Routes {
			u, err := url.Parse(text)
			if err != nil {
				return err
			}
			o.Routes = append(o.Routes, u)
		}
	}
	if r.Log != "" {
		o.NoLog, o.LogFile = false, r.Log
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	if r.Log != "" {
		s.ConfigureLogger()
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

func serverOptions(dir string) *server.Options {
	return &server.Options{
		ServerName: "test", Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
		DisableJetStreamBanner: true,
	}
}

// freePort is one that was free a moment ago, and is none of those that the kernel hands out.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		n := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n)); err == nil {
			l.Close()
			return n
		}
	}
	t.Fatal("no free port")
	return 0
}

// world is a log, a server and a forwarder between them.
type world struct {
	t       *testing.T
	dir     string
	log     *seglog.Log
	streams *archive.Streams
	cfg     config.Config
	options *server.Options
	server  *server.Server
	fw      *Forwarder
	numbers map[string]int
	told    io.Writer // gets what the next forwarder says, too; nil: nobody does
}

// newWorld has no forwarder yet. change may be nil.
func newWorld(t *testing.T, change func(*server.Options)) *world {
	t.Helper()
	w := &world{
		t: t, dir: t.TempDir(), numbers: map[string]int{},
		options: serverOptions(filepath.Join(t.TempDir(), "js")),
	}
	if change != nil {
		change(w.options)
	}
	w.serve()
	w.options.Port = w.server.Addr().(*net.TCPAddr).Port // the same again
	w.cfg = config.Config{
		Log: config.Log{Dir: w.dir},
		Forward: []config.Forward{{
			To: "nats", URLs: []string{w.url()},
			Batch: config.Batch{Frames: 7, Delay: 20 * time.Millisecond},
		}},
	}
	w.open()
	t.Cleanup(func() {
		if w.fw != nil {
			w.fw.Stop()
		}
		_ = w.log.Close()
		w.unserve()
	})
	return w
}

func (w *world) url() string { return w.server.ClientURL() }

func (w *world) serve() {
	w.t.Helper()
	s, err := server.NewServer(w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	w.server = s
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		w.t.Fatal("the server does not serve")
	}
}

func (w *world) unserve() {
	w.server.Shutdown()
	w.server.WaitForShutdown()
}

// open opens the log of the folder.
func (w *world) open() {
	w.t.Helper()
	dir, err := seglog.Dir(w.dir)
	if err == nil {
		w.log, err = seglog.Open(seglog.Config{
			FS: dir, SegmentBytes: 1 << 20, MinFree: -1,
			BatchDelay: time.Millisecond,
		})
	}
	if err == nil {
		w.streams, err = archive.LoadStreams(w.dir)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// add appends frames of sources, in turn, and waits until they are durable.
func (w *world) add(n int, sources ...string) {
	w.t.Helper()
	for range n {
		for _, s := range sources {
			number, err := w.streams.Number(archive.Stream{Source: s, Frame: "line"})
			if err == nil {
				w.numbers[s]++
				_, err = w.log.Append(number, time.Now().UnixNano(), fmt.Appendf(nil, "%s frame %d", s, w.numbers[s]))
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if err := w.log.Sync(); err != nil {
		w.t.Fatal(err)
	}
}

// forward starts a forwarder, behind the end of the one before.
func (w *world) forward() {
	w.t.Helper()
	if w.fw != nil {
		w.fw.Stop()
	}
	cfg := w.cfg.WithDefaults()
	out := w.t.Output()
	if w.told != nil {
		out = io.MultiWriter(out, w.told)
	}
	w.fw = Start(cfg, archive.Live(w.log, w.streams), slog.New(slog.NewTextHandler(out, nil)))
}

func (w *world) book() ledger.Forwarding { return w.fw.Books()[0] }

// caughtUp waits until everything is acknowledged.
func (w *world) caughtUp() {
	w.t.Helper()
	testenv.Until(w.t, time.Minute, "everything is forwarded", func() bool {
		b := w.book()
		return b.State == ledger.ForwardOn && b.Through == w.log.Position().Durable
	})
}

// stops waits until the destination, or a source of it, has stopped or is down for a reason.
func (w *world) fails(state, reason string) {
	w.t.Helper()
	testenv.Until(w.t, time.Minute, state+": "+reason, func() bool {
		b := w.book()
		return b.State == state && b.Reason == reason ||
			slices.ContainsFunc(b.Sources,
				func(s ledger.ForwardSource) bool { return s.State == state && s.Reason == reason })
	})
}

// js is a connection of a test.
func (w *world) js() jetstream.JetStream {
	w.t.Helper()
	nc, err := nats.Connect(w.url())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// frame is one as a consumer finds it.
type frame struct {
	seq  uint64
	data string
}

// consumed reads a stream from its beginning, by nothing of this package: what it finds by subject,
// in order.
func consumed(t *testing.T, url, stream string) map[string][]frame {
	t.Helper()
	all, err := consume(url, stream)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// answer asks again and again: a cluster never answers what it was asked while it elected a leader.
func answer[T any](ctx context.Context, question func(context.Context) (T, error)) (has T, err error) {
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		has, err = question(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			return has, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func consume(url, stream string) (map[string][]frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s, err := answer(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, stream) })
	if err != nil {
		return nil, fmt.Errorf("ask for stream %s: %w", stream, err)
	}
	c, err := answer(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	})
	if err != nil {
		return nil, fmt.Errorf("make a consumer of stream %s: %w", stream, err)
	}
	messages, err := c.Messages() // Next would have the servers make a consumer for each message
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	all := map[string][]frame{}
	for range s.CachedInfo().State.Msgs {
		m, err := messages.Next(jetstream.NextMaxWait(time.Minute))
		if err != nil {
			return nil, fmt.Errorf("wait for a message of stream %s: %w", stream, err)
		}
		b := m.Data()
		if m.Headers().Get("Tallywheel-Batch") == "" {
			seq, _ := strconv.ParseUint(m.Headers().Get("Tallywheel-Last"), 10, 64)
			all[m.Subject()] = append(all[m.Subject()], frame{seq, string(b)})
			continue
		}
		for len(b) > 0 {
			end := 20 + binary.LittleEndian.Uint32(b[16:])
			all[m.Subject()] = append(all[m.Subject()], frame{binary.LittleEndian.Uint64(b), string(b[20:end])})
			b = b[end:]
		}
	}
	return all, nil
}

// logged is what a log has, by the subject that it should have.
func logged(t *testing.T, dir string) map[string][]frame {
	t.Helper()
	in, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := in.Records(archive.Cursor{})
	defer c.Close()
	all := map[string][]frame{}
	for {
		rec, of, ok, err := c.Next()
		if err != nil {
			return all
		}
		if ok {
			subject := "tallywheel." + Escape(of.Source)
			all[subject] = append(all[subject], frame{rec.Seq, string(rec.Data)})
		}
	}
}

// same fails unless two have the same frames in the same order.
func same(t *testing.T, got, want map[string][]frame) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d subjects, want %d", len(got), len(want))
	}
	for subject, frames := range want {
		has := got[subject]
		if i := firstDifference(has, frames); i >= 0 {
			t.Errorf("%s: %d frames, want %d; the first difference is at %d: %v, want %v",
				subject, len(has), len(frames), i, has[min(i, len(has)):min(i+3, len(has))],
				frames[min(i, len(frames)):min(i+3, len(frames))])
		}
	}
}

func firstDifference(a, b []frame) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}
