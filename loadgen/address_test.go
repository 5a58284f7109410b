package loadgen

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAddressesThatCannotBe: what is no URL of a server is a wrong configuration, and says what
// would be one.
func TestAddressesThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:8080":          "want http://host:port/path",
		"localhost:8080":          "want http://host:port/path",
		"http://":                 "want http://host:port/path",
		"http://127.0.0.1:99999/": "port 99999: want 1 to 65535",
		"https://127.0.0.1:0/":    "port 0: want 1 to 65535",
		"http://127.0.0.1:x/":     "invalid port",
		"http://[::1]:80/?q=a b":  "want %20 for a space",
	} {
		if _, err := New(Config{URL: text}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestSecondAddress: a server that is at the second address of its name alone is found there, as
// localhost may be at ::1.
func TestSecondAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("SKIPPED: no IPv6 on loopback: %v; sysctl net.ipv6.conf.lo.disable_ipv6=0", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	at := fmt.Sprintf("http://localhost:%d/", ln.Addr().(*net.TCPAddr).Port)
	l, err := New(Config{URL: at, Connections: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r, err := l.Once(t.Context()); err != nil || r.Requests+r.Late != 3 || r.Failed() > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	s.Close()
	if _, err := New(Config{URL: at, Connections: 3}); err == nil || strings.Count(err.Error(), "refused") != 2 ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v: want what became of both, in a line", err)
	}
}

// TestZones: the zone of an address is that of its connections, and no matter of the server's.
func TestZones(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skipf("SKIPPED: no loopback interface lo: %v; ip link set lo up", err)
	}
	for _, zone := range []string{"lo", strconv.Itoa(lo.Index)} {
		u, err := url.Parse("http://[fe80::1%25" + zone + "]:9/")
		if err != nil {
			t.Fatal(err)
		}
		to, err := resolve(t.Context(), u, time.Minute)
		want := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(strconv.Itoa(lo.Index)), 9)
		if err != nil || len(to) != 1 || to[0] != want || hostOf(u) != "[fe80::1]:9" {
			t.Errorf("%v: %v, %v; host %s", u, to, err, hostOf(u))
		}
		if _, err := New(Config{URL: u.String(), Connections: 1, Timeout: 100 * time.Millisecond}); err == nil ||
			strings.Contains(err.Error(), "invalid argument") { // as an address of that kind without a zone
			t.Errorf("%v: %v", u, err)
		}
	}
	if _, err := New(Config{URL: "http://[fe80::1%25nothing]:9/"}); err == nil ||
		!strings.Contains(err.Error(), "zone nothing of fe80::1%nothing: ") {
		t.Errorf("%v", err)
	}
	u, err := url.Parse("http://[::1]:80/")
	if err != nil || hostOf(u) != "[::1]:80" {
		t.Errorf("%v, %v", u, err)
	}
}

// TestTLSWithoutAnAnswer: a handshake that is not answered says how long it was waited for.
func TestTLSWithoutAnAnswer(t *testing.T) {
	ended := make(chan struct{})
	silent := serveRaw(t, func(net.Conn) { <-ended })
	t.Cleanup(func() { close(ended) }) // before serveRaw waits for its goroutines
	_, err := New(Config{
		URL: strings.Replace(silent, "http:", "https:", 1), Connections: 2,
		Timeout: 150 * time.Millisecond,
	})
	if err == nil || !strings.Contains(err.Error(), "no answer of TLS within 150ms") {
		t.Errorf("%v", err)
	}
}
