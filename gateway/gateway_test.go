package gateway

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial/serialtest"
	"github.com/tallywheel/tallywheel/server"
	"github.com/tallywheel/tallywheel/uring/uringtest"
)

func TestMain(m *testing.M) {
	uringtest.Prepare()
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, dir string, edit func(*Config), sources ...SourceConfig) *Gateway {
	t.Helper()
	cfg := Config{
		Log: LogConfig{Dir: dir, Segment: 1 << 20, Delay: time.Millisecond},
		API: APIConfig{Listen: "127.0.0.1:0"}, Server: ServerConfig{Engine: engine}, Sources: sources,
	}
	if edit != nil {
		edit(&cfg)
	}
	g, err := Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// engine serves what the tests ask for; eachEngine sets it.
var engine = "auto"

// eachEngine runs a test with every engine that is to be had.
func eachEngine(t *testing.T, f func(*testing.T)) {
	defer func() { engine = "auto" }()
	for _, e := range []server.Engine{server.Std, server.Epoll, server.Uring} {
		t.Run(string(e), func(t *testing.T) {
			if err := server.Available(e); err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
			engine = string(e)
			f(t)
		})
	}
}

func stop(t *testing.T, g *Gateway) ledger.Sheet {
	t.Helper()
	s, err := g.Stop("test")
	if err != nil {
		t.Error(err)
	}
	for _, p := range s.Ports {
		if len(p.Unbalanced) > 0 || p.Frames.InFlight != 0 || p.Bytes.Partial != 0 {
			t.Errorf("the last sheet: %+v", p)
		}
	}
	return s
}

func tcp(id string) SourceConfig {
	return SourceConfig{ID: id, TCP: &NetConfig{Listen: "127.0.0.1:0"}, Frame: FrameConfig{Kind: "tally128"}}
}

// address is where a listening source can be reached.
func address(g *Gateway, id string) string {
	for _, p := range g.snapshot() {
		if l, ok := p.opener.(*listener); ok && p.lane.cfg.ID == id {
			return l.l.Addr().String()
		}
	}
	return ""
}

func portOf(g *Gateway, id string) ledger.Port {
	for _, p := range g.Sheet().Ports {
		if p.ID == id {
			return p
		}
	}
	return ledger.Port{}
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

func stored(t *testing.T, g *Gateway, id string, n uint64) {
	t.Helper()
	testenv.Until(t, 20*time.Second, fmt.Sprintf("%d frames of %s stored", n, id), func() bool { return portOf(g, id).Frames.Stored >= n })
}

var strategies = []string{"ring", "blocking", "polling", pipelineStrategy}

func TestConnectionsComeAndGo(t *testing.T) {
	for _, strategy := range strategies {
		g := start(t, t.TempDir(), func(c *Config) { c.Read.Strategy = strategy }, tcp("a"))
		addr := address(g, "a")
		c := dial(t, addr)
		write(t, c, frames(0, 10))
		stored(t, g, "a", 10)
		c2 := dial(t, addr) // a device that connects again takes over
		write(t, c2, frames(10, 5)[:5*128-20])
		stored(t, g, "a", 14)
		c2.Close()
		c3 := dial(t, addr)
		write(t, c3, frames(16, 4))
		stored(t, g, "a", 18)
		c.Close()
		c3.Close()
		testenv.Until(t, 10*time.Second, "the end is noticed", func() bool { return portOf(g, "a").State == stateWaiting })
		p := stop(t, g).Ports[0]
		f := p.Frames
		if f.OK != 18 || f.Missing != 2 || f.MissingCorrupt != 1 || p.Bytes.Resync != 108 {
			t.Errorf("%s: %+v %+v; want 18 frames, 2 missing, 1 of them cut in the middle", strategy, p.Bytes, f)
		}
	}
}

func TestDatagrams(t *testing.T) {
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.LocalAddr().String()
	free.Close()
	g := start(t, t.TempDir(), nil,
		SourceConfig{ID: "u", UDP: &NetConfig{Listen: addr}, Frame: FrameConfig{Kind: "line"}})
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testenv.Until(t, 10*time.Second, "the socket is open", func() bool { return portOf(g, "u").State == stateOpen })
	for _, s := range []string{"one\ntwo", "three", "$GPGLL*00", "", "four\n"} {
		write(t, c, []byte(s))
	}
	stored(t, g, "u", 4)
	p := stop(t, g).Ports[0]
	if p.Frames.OK != 4 || p.Frames.Corrupt != 1 || p.Bytes.Resync != 9 || p.Kernel == nil || *p.Kernel.BufferOverrun != 0 {
		t.Errorf("%+v %+v %+v; want 4 lines, a datagram ending one, and a wrong checksum", p.Bytes, p.Frames, p.Kernel)
	}
}

// A port that vanishes and comes back behind the same link under another device name goes on being read.
func TestPortReturnsUnderAnotherName(t *testing.T) {
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	g := start(t, dir, nil, SourceConfig{ID: "s", Serial: &SerialConfig{Port: port.Link}, Frame: FrameConfig{Kind: "tally128"}})
	write(t, port, frames(0, 20))
	stored(t, g, "s", 20)
	if err := port.Unplug(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 10*time.Second, "the port is missed", func() bool { return portOf(g, "s").State == stateWaiting })
	if err := port.Plug(); err != nil {
		t.Fatal(err)
	}
	write(t, port, frames(23, 20))
	stored(t, g, "s", 40)
	p := stop(t, g).Ports[0]
	if p.OutageCount != 1 || p.Outages[0].To == 0 || p.Frames.MissingUnseen != 3 {
		t.Errorf("outages %+v, %+v; want one that is over, and 3 unseen", p.Outages, p.Frames)
	}
}

// noise is a lot of random bytes.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNoiseIsQuarantinedAndHarmsNothing(t *testing.T) {
	dir := t.TempDir()
	s := tcp("n")
	s.Quarantine = true
	g := start(t, dir, nil, s)
	c := dial(t, address(g, "n"))
	junk := noise(t, 100_000)
	write(t, c, frames(0, 3))
	write(t, c, junk)
	write(t, c, frames(3, 3))
	c.Close()
	stored(t, g, "n", 6)
	p := stop(t, g).Ports[0]
	if p.Frames.Missing != 0 || p.Bytes.Resync != 100_000 || p.Bytes.Quarantined != 100_000 {
		t.Errorf("%+v %+v; want nothing missing and all noise classified and kept", p.Bytes, p.Frames)
	}
	var got []byte
	eachRecord(t, dir, Query{Quarantine: true}, func(r Record) {
		if want := uint64(3*tally128.Size + len(got)); *r.Offset != want {
			t.Fatalf("quarantined bytes at %d, want %d", *r.Offset, want)
		}
		got = append(got, r.Data...)
	})
	if !bytes.Equal(got, junk) {
		t.Errorf("quarantine has %d bytes that differ from the %d sent", len(got), len(junk))
	}
}

func eachRecord(t *testing.T, dir string, q Query, f func(Record)) {
	t.Helper()
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := seglog.NewReader(fs, 0)
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if out, ok := q.Match(streams, rec); ok {
			f(out)
		}
	}
}

func TestReloadTouchesOnlyWhatChanged(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("stays"), tcp("goes"))
	c := dial(t, address(g, "stays"))
	defer c.Close()
	write(t, c, frames(0, 5))
	stored(t, g, "stays", 5)
	next := g.cfg
	next.Sources = []SourceConfig{g.cfg.Sources[0], tcp("comes")}
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	write(t, c, frames(5, 5))
	stored(t, g, "stays", 10)
	var ids []string
	for _, p := range g.Sheet().Ports {
		ids = append(ids, p.ID)
	}
	if strings.Join(ids, " ") != "stays comes" {
		t.Errorf("sources after the reload: %v", ids)
	}
	bad := g.cfg
	bad.Log.Sync = "never"
	if err := g.Reload(bad); err == nil || !strings.Contains(err.Error(), "needs a restart") {
		t.Errorf("a change of the log gives %v", err)
	}
	stop(t, g)
}

func TestSecondRecorderIsRefused(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil)
	defer stop(t, g)
	if _, err := Start(Config{Log: LogConfig{Dir: dir}}, slog.New(slog.DiscardHandler)); !errors.Is(err, seglog.ErrLocked) {
		t.Errorf("the second recorder gets %v, want ErrLocked", err)
	}
}

func TestNextStartNamesTheGap(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, tcp("a"))
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 50))
	stored(t, g, "a", 50)
	c.Close()
	stop(t, g)
	g = start(t, dir, nil, tcp("a"))
	c = dial(t, address(g, "a"))
	write(t, c, frames(57, 10))
	stored(t, g, "a", 10)
	c.Close()
	p := stop(t, g).Ports[0]
	if p.Frames.MissingUnseen != 7 || p.Outages[0].Cause != "the recorder was not running" {
		t.Errorf("%+v, %+v; want 7 unseen while nobody recorded", p.Frames, p.Outages)
	}
	b, err := os.ReadFile(filepath.Join(dir, HistoryFile))
	if err != nil || bytes.Count(b, []byte("\n")) != 2 {
		t.Errorf("history: %v, %s; want two lines", err, b)
	}
}

func serve(t *testing.T, g *Gateway) *Server {
	t.Helper()
	s, err := g.Serve()
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

func TestAPI(t *testing.T) { eachEngine(t, testAPI) }

func testAPI(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
	s := serve(t, g)
	c := dial(t, address(g, "a"))
	write(t, c, frames(0, 250))
	stored(t, g, "a", 250)
	c.Close()

	var numbers []uint64
	cursor := ""
	for range 10 {
		_, body := get(t, s.URL()+"api/v1/records?source=a&limit=100&cursor="+cursor, nil)
		var page Page
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			numbers = append(numbers, *r.Number)
			if r.Len != 128 || len(r.Data) != 128 {
				t.Errorf("record %+v", r)
			}
		}
		if cursor = page.Cursor; len(page.Records) == 0 {
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
		"healthz":       `"status":"ok"`,
		"api/v1/ports":  `"kind":"tcp"`,
		"api/v1/sheet":  `"balanced":true`,
		"api/v1/status": `"verdict":"0 lost since`,
		"api/v1/records?from_time=2100-01-01T00:00:00Z": `"records":[]`,
		"metrics": `tallywheel_frames_total{kind="stored",source="a"} 250`,
		"":        "<title>Tallywheel</title>",
	} {
		if code, body := get(t, s.URL()+path, nil); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %.300s; want %s", path, code, body, want)
		}
	}
	for _, path := range []string{"limit=0", "limit=x", "limit=99999999", "cursor=x", "from_time=noon"} {
		if code, _ := get(t, s.URL()+"api/v1/records?"+path, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400", path, code)
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
	g := start(t, t.TempDir(), func(c *Config) { c.API.Token = "0123456789abcdef" })
	s := serve(t, g)
	for name, c := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"none":     {nil, 401},
		"wrong":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }, 401},
		"right":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdef") }, 200},
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
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
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
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
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
	g := start(t, t.TempDir(), func(c *Config) {
		c.API = APIConfig{Listen: "0.0.0.0:0", Token: "0123456789abcdef", TLS: TLSConfig{Cert: cert, Key: key}}
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

// A client that does not read its stream falls behind in the log; the recorder and other clients do not wait for it.
func TestSlowStreamHoldsNobodyUp(t *testing.T) { eachEngine(t, testSlowStreamHoldsNobodyUp) }

func testSlowStreamHoldsNobodyUp(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("a"))
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
	c := dial(t, address(g, "a"))
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
		var r Record
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

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// After a stop no descriptor is left, whatever the strategy; goroutines are TestMain's affair.
func TestStopLeavesNothingOpen(t *testing.T) { eachEngine(t, testStopLeavesNothingOpen) }

func testStopLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	before := 0
	for i, strategy := range append([]string{"ring"}, strategies...) {
		g := start(t, dir, func(c *Config) { c.Read.Strategy = strategy }, tcp("a"),
			SourceConfig{ID: "u", UDP: &NetConfig{Listen: "127.0.0.1:0"}, Frame: FrameConfig{Kind: "raw"}},
			SourceConfig{ID: "s", Serial: &SerialConfig{Port: port.Link}, Frame: FrameConfig{Kind: "tally128"}},
			SourceConfig{ID: "absent", Serial: &SerialConfig{Port: dir + "/absent"}, Frame: FrameConfig{Kind: "line"}})
		s := serve(t, g)
		c := dial(t, address(g, "a"))
		write(t, c, frames(0, 3))
		stored(t, g, "a", 3)
		get(t, s.URL()+"api/v1/sheet", nil)
		c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		stop(t, g)
		http.DefaultClient.CloseIdleConnections()
		if i == 0 { // the first round opens what the runtime keeps for good
			before = openFiles(t)
			continue
		}
		testenv.Until(t, 5*time.Second, strategy+": all descriptors closed", func() bool { return openFiles(t) <= before })
	}
}

// A flood of noise is classified to the last byte, and the frame behind it is found.
func TestFloodOfNoise(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("n"))
	c := dial(t, address(g, "n"))
	junk, total := noise(t, 1<<20), 0
	write(t, c, frames(0, 1))
	for range 64 {
		write(t, c, junk)
		total += len(junk)
	}
	write(t, c, frames(1, 1))
	c.Close()
	stored(t, g, "n", 2)
	p := stop(t, g).Ports[0]
	if p.Frames.OK < 2 || p.Bytes.Resync+p.Bytes.Framed != uint64(total)+256 {
		t.Errorf("%+v %+v; want %d bytes classified", p.Bytes, p.Frames, total+256)
	}
}

// A connection that is taken the moment it is offered must not be ended by its own signal.
func TestConnectionIsNotReplacedByItself(t *testing.T) {
	l, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for range 2000 {
		c := dial(t, l.l.Addr().String())
		d, err := l.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			runtime.Gosched()
			select {
			case <-l.replaced():
				t.Fatal("a newer connection is announced, and there is none")
			default:
			}
		}
		if err := errors.Join(d.close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
