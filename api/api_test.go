package api

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/server"
	"github.com/tallywheel/tallywheel/uring/uringtest"
)

func TestMain(m *testing.M) {
	uringtest.Prepare()
	testenv.NoLeaks(m)
}

// device listens for the recorder, which dials it.
type device struct{ l net.Listener }

func newDevice(t *testing.T) device {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return device{l}
}

func (d device) source(id string) config.Source {
	return config.Source{ID: id, TCP: &config.Net{Dial: d.l.Addr().String()}, Frame: config.Frame{Kind: "tally128"}}
}

// connected is the connection that the recorder makes.
func (d device) connected(t *testing.T) net.Conn {
	t.Helper()
	c, err := d.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// engine serves what the tests ask for; eachEngine sets it.
var engine = "auto"

func start(t *testing.T, edit func(*config.Config), sources ...config.Source) *recorder.Recorder {
	t.Helper()
	cfg := config.Config{
		Log: config.Log{Dir: t.TempDir(), Segment: 1 << 20, Delay: time.Millisecond},
		API: config.API{Listen: "127.0.0.1:0"}, Server: config.Server{Engine: engine}, Sources: sources,
	}
	if edit != nil {
		edit(&cfg)
	}
	g, err := recorder.Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func stop(t *testing.T, g *recorder.Recorder) {
	t.Helper()
	if _, err := g.Stop("test"); err != nil {
		t.Error(err)
	}
}

func frames(from, n uint64) []byte {
	b := make([]byte, n*tally128.Size)
	for i := range n {
		tally128.Encode(b[i*tally128.Size:], tally128.Header{Device: 1, Epoch: 1, Seq: from + i}, nil)
	}
	return b
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
}

func portOf(g *recorder.Recorder, id string) ledger.Port {
	for _, p := range g.Sheet().Ports {
		if p.ID == id {
			return p
		}
	}
	return ledger.Port{}
}

func stored(t *testing.T, g *recorder.Recorder, id string, n uint64) {
	t.Helper()
	testenv.Until(t, 20*time.Second, fmt.Sprintf("%d frames of %s stored", n, id),
		func() bool { return portOf(g, id).Frames.Stored >= n })
}

// eachEngine runs a test with every engine that is to be had.
func eachEngine(t *testing.T, f func(*testing.T)) {
	defer func() { engine = "auto" }()
	for _, e := range []server.Engine{server.Std, server.Epoll, server.Uring} {
		t.Run(string(e), func(t *testing.T) {
			if err := server.Available(e); err != nil {
				t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			}
			engine = string(e)
			f(t)
		})
	}
}

// served is a recorder of one source, "a", with its API, and the connection of the device behind
// the source. All of it ends with the test.
func served(
	t *testing.T, edit func(*config.Config), source func(d device, id string) config.Source,
) (g *recorder.Recorder, s *Server, c net.Conn) {
	t.Helper()
	d := newDevice(t)
	g = start(t, edit, source(d, "a"))
	t.Cleanup(func() { stop(t, g) })
	s = serve(t, g)
	t.Cleanup(func() { s.Close() })
	c = d.connected(t)
	t.Cleanup(func() { c.Close() })
	return g, s, c
}

func serve(t *testing.T, g *recorder.Recorder) *Server {
	t.Helper()
	s, err := Serve(g, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func get(t *testing.T, url string, edit func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// testPage is a page of records as clients see it.
type testPage struct {
	Records []archive.Record `json:"records"`
	pageEnd
}

func TestAPI(t *testing.T) { eachEngine(t, testAPI) }

func testAPI(t *testing.T) {
	a := newDevice(t)
	g := start(t, nil, a.source("a"))
	s := serve(t, g)
	c := a.connected(t)
	defer c.Close()
	write(t, c, frames(0, 250))
	stored(t, g, "a", 250)

	var numbers []uint64
	cursor := ""
	for range 10 {
		_, body := get(t, s.URL()+"api/v1/records?source=a&limit=100&cursor="+cursor, nil)
		var page testPage
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			numbers = append(numbers, *r.Number)
			if r.Len != 128 || len(r.Data) != 128 {
				t.Errorf("record %+v", r)
			}
		}
		if cursor = page.Cursor; page.End {
			break
		}
	}
	for i, n := range numbers {
		if n != uint64(i) {
			t.Fatalf("page %d has frame %d", i, n)
		}
	}
	if len(numbers) != 250 {
		t.Errorf("%d records by pages, want 250", len(numbers))
	}
	for path, want := range map[string]string{
		"healthz":       `"status":"ok","level":"good"`,
		"api/v1/ports":  `"kind":"tcp"`,
		"api/v1/sheet":  `"balanced":true`,
		"api/v1/status": `"level":"good","good":true,"lost_wire":{"frames":0,`,
		"api/v1/records?from_time=2100-01-01T00:00:00Z": `"records":[]`,
		"metrics": `tallywheel_frames_total{kind="stored",source="a"} 250`,
		"":        "<title>Tallywheel</title>",
	} {
		if code, body := get(t, s.URL()+path, nil); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %.300s; want %s", path, code, body, want)
		}
	}
	for path, want := range map[string]string{
		"records?limit=0": "limit", "records?limit=x": "limit", "records?limit=99999999": "10000",
		"records?cursor=x":   "cursor",
		"records?from_seq=x": "number", "records?from_seq=-1": "number", "records?from_time=noon": "RFC 3339",
		"records?quarantine=maybe": "true or false", "records?form_seq=3": "from_seq",
		"records?source=a&source=b": "twice",
		"records?source=nope":       "there are a", "stream?source=a/b": "there are a",
		"losses?source=nope": "there are a",
		"records?from_time=2026-01-02T00:00:00Z&to_time=2026-01-01T00:00:00Z": "after to_time",
		"stream?limit=3": "from_seq", "stream?from_seq=x": "number", "events?source=a": "no parameters",
		"status?x": "no parameters",
	} {
		if code, body := get(t, s.URL()+"api/v1/"+path, nil); code != http.StatusBadRequest ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d, %s; want 400 and %q", path, code, body, want)
		}
	}
	for query, want := range map[string]int{
		"from_time=2500-01-01T00:00:00Z": 0, "to_time=1969-01-01T00:00:00Z": 0, "from_time=1969-01-01T00:00:00Z": 100,
		"to_time=2500-01-01T00:00:00Z": 100, "from_time=0001-01-01T00:00:00Z&to_time=9999-01-01T00:00:00Z": 100,
	} {
		var page testPage
		if code, body := get(t, s.URL()+"api/v1/records?"+query, nil); code != http.StatusOK ||
			json.Unmarshal([]byte(body), &page) != nil || len(page.Records) != want {
			t.Errorf("%s: %d, %d records; want %d", query, code, len(page.Records), want)
		}
	}
	for _, path := range []string{"%E9", "a%00b", "..%2f", "%E9/x", "nothing"} {
		if code, body := get(t, s.URL()+path, nil); code != http.StatusNotFound && code != http.StatusBadRequest {
			t.Errorf("%s: %d, %s; want 404", path, code, body)
		}
	}
	raw := dial(t, s.addr.String())
	defer raw.Close()
	fmt.Fprintf(raw, "GET /\xe9 HTTP/1.1\r\nHost: LOCALHOST\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(raw); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 40") ||
		strings.Contains(string(b), "403") {
		t.Errorf("a byte that is no UTF-8: %s, %v", b, err)
	}
	probe := dial(t, s.addr.String())
	defer probe.Close()
	fmt.Fprint(probe, "GET /healthz HTTP/1.0\r\n\r\n") // which has no Host
	if b, err := io.ReadAll(probe); err != nil || !strings.HasPrefix(string(b), "HTTP/1.0 200 ") {
		t.Errorf("a probe by HTTP/1.0: %s, %v", b, err)
	}
	for _, host := range []string{"LOCALHOST", "LocalHost:80", "[::1]", "[::1]:80", "127.0.0.1"} {
		if code, body := get(t, s.URL()+"healthz", func(r *http.Request) { r.Host = host }); code != http.StatusOK {
			t.Errorf("host %s: %d, %s", host, code, body)
		}
	}
	for name, edit := range map[string]func(*http.Request){
		"a foreign host": func(r *http.Request) { r.Host = "evil.example:80" },
		"another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		if code, _ := get(t, s.URL()+"api/v1/sheet", edit); code != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", name, code)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	stop(t, g)
}

func TestToken(t *testing.T) { eachEngine(t, testToken) }

func testToken(t *testing.T) {
	g := start(t, func(c *config.Config) { c.API.Token = "0123456789abcdef" })
	s := serve(t, g)
	for name, c := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"none":     {nil, 401},
		"wrong":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }, 401},
		"right":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdef") }, 200},
		"bearer":   {func(r *http.Request) { r.Header.Set("Authorization", "bearer 0123456789abcdef") }, 200},
		"password": {func(r *http.Request) { r.SetBasicAuth("", "0123456789abcdef") }, 200},
	} {
		if code, _ := get(t, s.URL()+"api/v1/sheet", c.edit); code != c.want {
			t.Errorf("%s: %d, want %d", name, code, c.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	stop(t, g)
}

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: pkcs},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return cert, key, pool
}

func TestTLS(t *testing.T) { eachEngine(t, testTLS) }

func testTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	g := start(t, func(c *config.Config) {
		c.API = config.API{Listen: "0.0.0.0:0", Token: "0123456789abcdef", TLS: config.TLS{Cert: cert, Key: key}}
	})
	s := serve(t, g)
	url := fmt.Sprintf("https://127.0.0.1:%d/api/v1/sheet", s.addr.(*net.TCPAddr).Port)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	for token, want := range map[string]int{"": 401, "0123456789abcdef": 200} {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: %d, want %d", token, resp.StatusCode, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	stop(t, g)
}

// A client that does not read its stream falls behind in the log; the recorder and other clients do
// not wait for it.
func TestSlowStreamHoldsNobodyUp(t *testing.T) { eachEngine(t, testSlowStreamHoldsNobodyUp) }

func testSlowStreamHoldsNobodyUp(t *testing.T) {
	a := newDevice(t)
	g := start(t, nil, a.source("a"))
	s := serve(t, g)
	slow := dial(t, s.addr.String())
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(slow, "GET /api/v1/stream?from_seq=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	resp, err := http.Get(s.URL() + "api/v1/stream?from_seq=1&source=a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	c := a.connected(t)
	const n = 20_000
	for i := range uint64(n / 100) {
		write(t, c, frames(i*100, 100))
	}
	stored(t, g, "a", n)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for next := uint64(0); next < n; {
		if !lines.Scan() {
			t.Fatalf("the stream ended at frame %d: %v", next, lines.Err())
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var r archive.Record
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			t.Fatal(err)
		}
		if *r.Number != next {
			t.Fatalf("frame %d follows %d", *r.Number, next-1)
		}
		next++
	}
	c.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	stop(t, g)
}

// The log is known from the first moment on, before there is a sample.
func TestStatusOfTheFirstSecond(t *testing.T) {
	g := start(t, nil, newDevice(t).source("a"))
	defer stop(t, g)
	api := serve(t, g)
	defer api.Close()
	if l := api.now().Sample.Log; l.Room <= 0 || l.DiskFree <= 0 {
		t.Errorf("the status of the first second: %+v", l)
	}
}

// Clients of the API never take what the log and the sources need: each takes one descriptor, and
// one more where it reads the log.
func TestConnectionsToTheAPIAreBounded(t *testing.T) {
	for descriptors, want := range map[int]int{0: minConns, 6: minConns, 60: 40, 20_000: maxConns} {
		s := newSeats(connections(descriptors))
		if s.conns != want || want > minConns && s.conns+cap(s.streams)+cap(s.pages) > descriptors {
			t.Errorf("with %d descriptors: %d connections, %d streams and %d pages; want %d", descriptors, s.conns,
				cap(s.streams), cap(s.pages), want)
		}
	}
}

// After a stop no descriptor is left, whatever serves; goroutines are TestMain's affair.
func TestStopLeavesNothingOpen(t *testing.T) { eachEngine(t, testStopLeavesNothingOpen) }

func testStopLeavesNothingOpen(t *testing.T) {
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := 0
	for i := range 3 {
		a := newDevice(t)
		g := start(t, nil, a.source("a"))
		s := serve(t, g)
		c := a.connected(t)
		write(t, c, frames(0, 3))
		stored(t, g, "a", 3)
		get(t, s.URL()+"api/v1/sheet", nil)
		a.l.Close()
		c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		stop(t, g)
		http.DefaultClient.CloseIdleConnections()
		if i == 0 { // the first round opens what the runtime keeps for good
			before = descriptors()
			continue
		}
		testenv.Until(t, 5*time.Second, "all descriptors closed", func() bool { return descriptors() <= before })
	}
}

// With linked operations, what became of the batches is in the metrics.
func TestLinkedBatchesAreCounted(t *testing.T) {
	if err := asyncfile.Available(asyncfile.Uring); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	a := newDevice(t)
	g := start(t, func(c *config.Config) { c.Log.Engine, c.Log.Linked = "uring", true }, a.source("a"))
	defer stop(t, g)
	c := a.connected(t)
	defer c.Close()
	write(t, c, frames(0, 3))
	stored(t, g, "a", 3)
	w := httptest.NewRecorder()
	metrics(g).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), `tallywheel_log_chains_total{kind="whole"}`) {
		t.Errorf("metrics:\n%s", w.Body)
	}
}

// Whoever asks for OpenMetrics gets it, with what runs here and what Go and the process need.
func TestMetricsAsTheyAreAskedFor(t *testing.T) {
	g := start(t, nil)
	defer stop(t, g)
	h := metrics(g)
	for accept, want := range map[string]string{
		"": "text/plain; version=0.0.4", "text/plain": "text/plain; version=0.0.4",
		"application/openmetrics-text; version=1.0.0": "application/openmetrics-text; version=1.0.0",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, want) || w.Code != http.StatusOK {
			t.Errorf("%q is answered with %d, %s", accept, w.Code, got)
		}
		for _, name := range []string{
			"tallywheel_build_info{goversion=", "go_goroutines ",
			"go_memory_classes_heap_objects_bytes ", "process_resident_memory_bytes ", "process_open_fds ",
		} {
			if !strings.Contains(w.Body.String(), "\n"+name) {
				t.Errorf("%q: there is no %s", accept, name)
			}
		}
		kinds := map[string]string{}
		for line := range strings.Lines(w.Body.String()) {
			var name, kind string
			if n, _ := fmt.Sscanf(line, "# TYPE %s %s", &name, &kind); n < 2 {
				continue
			}
			if before, ok := kinds[name]; ok {
				t.Errorf("%q: the family %s is a %s and a %s", accept, name, before, kind)
			}
			kinds[name] = kind
		}
		if len(kinds) == 0 {
			t.Errorf("%q: no family has a kind", accept)
		}
	}
}
