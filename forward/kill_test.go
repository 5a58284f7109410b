package forward

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// How long TestKills goes on: 200 kills and ten million frames are
//
//	go test ./forward -run TestKills -kills 200 -frames 10000000 -wait 1h -timeout 4h
var (
	kills  = flag.Int("kills", 12, "TestKills: how often something is killed")
	frames = flag.Int64("frames", 0, "TestKills: go on until the devices have sent so many frames")
	wait   = flag.Duration("wait", 2*time.Minute, "TestKills: how long to wait for the end")
)

// readable is how many frames a test holds in memory.
const readable = 1 << 20

// device sends numbered lines to whoever connects, until it is told to end.
type device struct {
	l    net.Listener
	sent atomic.Int64
	over atomic.Bool
	busy sync.WaitGroup
}

func newDevice(t *testing.T) *device {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &device{l: l}
	d.busy.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.busy.Go(func() { d.feed(c) })
		}
	})
	t.Cleanup(d.end)
	return d
}

func (d *device) feed(c net.Conn) {
	defer c.Close()
	for tick := time.NewTicker(time.Millisecond); !d.over.Load(); <-tick.C {
		var b []byte
		for range 20 {
			b = fmt.Appendf(b, "frame %d\n", d.sent.Add(1))
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

func (d *device) end() {
	d.over.Store(true)
	d.l.Close()
	d.busy.Wait()
}

// child is a process that is killed and started again.
type child struct {
	name  string
	start func() *exec.Cmd
	cmd   *exec.Cmd
}

func (c *child) begin(t *testing.T) {
	t.Helper()
	c.cmd = c.start()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// TestKills forwards what two devices send, while the recorder and the server are killed at random
// moments, one or both. Then the stream has what the log has, each frame once, in the order of each
// source: no double, no gap.
func TestKills(t *testing.T) {
	for _, within := range []bool{false, true} {
		t.Run(fmt.Sprintf("server within %v", within), func(t *testing.T) { killAtRandom(t, within) })
	}
}

func killAtRandom(t *testing.T, within bool) {
	dir, port := t.TempDir(), freePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	a, b := newDevice(t), newDevice(t)
	to := fmt.Sprintf("urls: [%q]", url)
	if within {
		to = fmt.Sprintf("listen: 127.0.0.1:%d", port)
	}
	file := filepath.Join(dir, "tallywheel.yaml")
	text := fmt.Sprintf("log: {dir: %s/data, segment: 1MiB}\napi: {listen: 127.0.0.1:0}\nforward: [{to: nats, %s, batch: {frames: 61, delay: 20ms}}]\nsources:\n"+
		"  - {id: a, tcp: {dial: %s}, frame: line}\n  - {id: b.2, tcp: {dial: %s}, frame: line}\n", dir, to, a.l.Addr(),
		b.l.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	t.Cleanup(func() {
		if b, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("the recorder said, at the end:\n%s", b[max(0, len(b)-3000):])
		}
	})
	program := testenv.Binary(t)
	recorder := &child{name: "recorder", start: func() *exec.Cmd {
		c := exec.Command(program, "run", "-c", file)
		c.Stderr = said
		return c
	}}
	all := []*child{recorder}
	if !within {
		all = append(all, &child{
			name:  "server",
			start: func() *exec.Cmd { return role{Port: port, Dir: dir + "/js"}.command(t) },
		})
	}
	for _, c := range all {
		c.begin(t)
		defer c.kill()
	}
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	count := func() uint64 { return messages(url) }
	hits := map[string]int{}
	for range *kills {
		before := count()
		testenv.Until(t, time.Minute, "messages arrive", func() bool { return count() > before })
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond) // a kill comes at any moment
		hit := all
		if n := rng.IntN(len(all) + 1); n < len(all) {
			hit = all[n : n+1]
		}
		for _, c := range hit {
			hits[c.name]++
			c.kill()
		}
		for _, c := range hit {
			c.begin(t)
		}
	}
	testenv.Until(t, *wait, "the devices have sent enough",
		func() bool { return a.sent.Load()+b.sent.Load() >= *frames })
	a.end()
	b.end()
	var f ledger.Forwarding
	testenv.Until(t, *wait, "everything is forwarded", func() bool {
		f = booksOf(t, said.Name())
		return f.State == ledger.ForwardOn && f.LagRecords == 0 && f.Through > 0
	})
	n := 0
	t.Run("consumer", func(t *testing.T) { n = readByOthers(t, url, filepath.Join(dir, "data")) })
	t.Logf("killed %v: %d frames forwarded", hits, n)
	if n > readable {
		return
	}
	got := consumed(t, url, "TALLYWHEEL")
	want := logged(t, filepath.Join(dir, "data"))
	same(t, got, want)
	n = 0
	for _, frames := range want {
		n += len(frames)
	}
	out, err := exec.Command(program, "tail", url, "--all", "--end").Output()
	if lines := bytes.Count(out, []byte("\n")); err != nil || lines != n {
		t.Errorf("tail prints %d lines, want %d: %v", lines, n, err)
	}
	t.Run("python", func(t *testing.T) { readByPython(t, url, want) })
}

// readByOthers has a consumer in Python read a stream, and holds the digest of what it had of each
// subject against the log's. It returns how many frames that were.
func readByOthers(t *testing.T, url, dir string) (n int) {
	python := testenv.LargePython(t, "nats", "make deps, or pip install nats-py")
	out, err := exec.Command(python, "testdata/consume.py", url, "TALLYWHEEL").Output()
	var got struct {
		Subjects map[string]tally
		Wrong    []string
	}
	if err = errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, wrong := range got.Wrong {
		t.Error(wrong)
	}
	want := tallied(t, dir)
	if !maps.Equal(got.Subjects, want) {
		t.Errorf("the stream has %+v, and the log %+v", got.Subjects, want)
	}
	for _, s := range want {
		n += s.Frames
	}
	return n
}

// tally is what there is of a subject.
type tally struct {
	Frames int
	Last   uint64
	Digest string
}

// tallied is what a log has, by subject.
func tallied(t *testing.T, dir string) map[string]tally {
	in, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := in.Records(archive.Cursor{})
	defer c.Close()
	all, digests := map[string]tally{}, map[string]hash.Hash{}
	for {
		rec, of, ok, err := c.Next()
		switch {
		case err == io.EOF:
			for subject, s := range all {
				s.Digest = hex.EncodeToString(digests[subject].Sum(nil))
				all[subject] = s
			}
			return all
		case err != nil:
			t.Fatal(err)
		case !ok:
			continue
		}
		subject := "tallywheel." + Escape(of.Source)
		if digests[subject] == nil {
			digests[subject] = sha256.New()
		}
		s := all[subject]
		all[subject] = tally{Frames: s.Frames + 1, Last: rec.Seq}
		b := binary.LittleEndian.AppendUint64(nil, rec.Seq)
		b = binary.LittleEndian.AppendUint64(b, uint64(rec.Time))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(rec.Data)))
		digests[subject].Write(append(b, rec.Data...))
	}
}

// readByPython has the script of the guide read a stream, which is a consumer that shares no code
// with this.
func readByPython(t *testing.T, url string, want map[string][]frame) {
	python := testenv.LargePython(t, "nats, pandas", "make deps, or pip install nats-py pandas")
	guide, err := os.ReadFile("../docs/guide/forward.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(guide)
	out, err := exec.Command(python, "-c", string(script[1]), url).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string][]frame{}
	rows, err := csv.NewReader(bytes.NewReader(bytes.TrimSpace(out))).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		seq, _ := strconv.ParseUint(row[1], 10, 64)
		subject := "tallywheel." + Escape(row[0])
		data := strings.TrimSuffix(strings.TrimPrefix(row[3], "b'"), "'") // as Python writes bytes
		got[subject] = append(got[subject], frame{seq, strings.ReplaceAll(data, `\n`, "\n")})
	}
	same(t, got, want)
}

// messages is how many a stream has; 0 while nobody answers.
func messages(url string) uint64 {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return 0
	}
	defer nc.Close()
	m, err := nc.Request("$JS.API.STREAM.INFO.TALLYWHEEL", nil, time.Second)
	var i struct {
		State struct {
			Messages uint64 `json:"messages"`
		} `json:"state"`
	}
	if err != nil || json.Unmarshal(m.Data, &i) != nil {
		return 0
	}
	return i.State.Messages
}

var pageURL = regexp.MustCompile(`url=(http://\S+)`)

// booksOf asks the recorder that has said where its page is last.
func booksOf(t *testing.T, said string) (f ledger.Forwarding) {
	t.Helper()
	b, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	all := pageURL.FindAllSubmatch(b, -1)
	if len(all) == 0 {
		return f
	}
	r, err := http.Get(string(all[len(all)-1][1]) + "api/v1/sheet")
	if err != nil {
		return f
	}
	defer r.Body.Close()
	var s ledger.Sheet
	if b, err = io.ReadAll(r.Body); err != nil || json.Unmarshal(b, &s) != nil || len(s.Forward) == 0 {
		return f
	}
	return s.Forward[0]
}
