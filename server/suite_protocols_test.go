package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// identity makes a certificate for a client, and the pool that trusts it.
func identity(t testing.TB, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(24 * time.Hour), Subject: pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// whoCalls answers with the names in the client's certificates, and the protocol.
func whoCalls(w http.ResponseWriter, r *http.Request) {
	for _, c := range r.TLS.PeerCertificates {
		fmt.Fprintf(w, "%s ", c.Subject.CommonName)
	}
	fmt.Fprintf(w, "chains=%d %s %s", len(r.TLS.VerifiedChains), r.Proto, r.TLS.NegotiatedProtocol)
}

// TestSuiteClientCertificates asks for certificates of clients in each way that crypto/tls has, by
// both versions of HTTP and TLS.
func TestSuiteClientCertificates(t *testing.T) {
	mine, pool := identity(t, "me")
	strange, _ := identity(t, "stranger")
	overTLS(t, func(t *testing.T, p place) {
		for _, c := range []struct {
			auth tls.ClientAuthType
			show *tls.Certificate
			want string // "": refused
		}{
			{tls.RequireAndVerifyClientCert, &mine, "me chains=1 "},
			{tls.RequireAndVerifyClientCert, &strange, ""},
			{tls.RequireAndVerifyClientCert, nil, ""},
			{tls.VerifyClientCertIfGiven, &mine, "me chains=1 "},
			{tls.VerifyClientCertIfGiven, &strange, ""},
			{tls.VerifyClientCertIfGiven, nil, "chains=0 "},
			{tls.RequireAnyClientCert, &strange, "stranger chains=0 "},
			{tls.RequestClientCert, nil, "chains=0 "},
			{tls.NoClientCert, &mine, "chains=0 "},
		} {
			tune, trust := secured(t)
			s := open(t, p, whoCalls, tune,
				func(cfg *server.Config) { cfg.TLS.ClientAuth, cfg.TLS.ClientCAs = c.auth, pool })
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				for _, proto := range []string{"HTTP/1.1 ", "HTTP/2.0 h2"} {
					asks := trust.Clone()
					asks.MaxVersion = version
					asks.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
						if c.show == nil {
							return &tls.Certificate{}, nil
						}
						return c.show, nil
					}
					got, err := visit(t, s, asks, strings.HasPrefix(proto, "HTTP/2"))
					if c.want == "" && err == nil || c.want != "" && got != c.want+proto {
						t.Errorf("%v, %v, TLS %x, %s: %q, %v, want %q", c.auth, c.show != nil, version, proto, got, err,
							c.want)
					}
				}
			}
		}
	})
}

// visit asks once, on a connection of its own.
func visit(t testing.TB, s *site, trust *tls.Config, h2 bool) (string, error) {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	tr := &http.Transport{TLSClientConfig: trust, Protocols: &protocols}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: suitePatience}).Get("https://" + s.addr)
	if err != nil {
		return "", err
	}
	return text(t, resp, nil), nil
}

// TestSuiteHTTP2 has many streams on one connection, with bodies both ways, trailers, and streams
// that end early.
func TestSuiteHTTP2(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		left := make(chan struct{}, 1)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/leave" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				left <- struct{}{}
				return
			}
			w.Header().Set("Trailer", "Sum")
			n, _ := io.Copy(w, r.Body)
			w.Header().Set("Sum", fmt.Sprint(r.Proto, n))
		}, tune)
		var protocols http.Protocols
		protocols.SetHTTP2(true)
		tr := &http.Transport{TLSClientConfig: trust, Protocols: &protocols}
		t.Cleanup(tr.CloseIdleConnections)
		c := &http.Client{Transport: tr, Timeout: 5 * suitePatience}
		resp, err := c.Get("https://" + s.addr) // the connection that all use
		text(t, resp, err)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				want := string(message(i*5000, uint64(i)))
				resp, err := c.Post("https://"+s.addr, "text/plain", strings.NewReader(want))
				if got := text(t, resp, err); got != want {
					t.Errorf("stream %d: %d bytes come back of %d", i, len(got), len(want))
				} else if sum := resp.Trailer.Get("Sum"); sum != fmt.Sprint("HTTP/2.0", len(want)) {
					t.Errorf("stream %d: the trailer is %q", i, sum)
				}
			})
		}
		all.Wait()
		ctx, leave := context.WithCancel(within(t))
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://"+s.addr+"/leave", nil)
		resp, err = c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		take(t, left, "the context of a stream to end")
		resp.Body.Close()
		if n := s.Stats().Accepted; n != 1 {
			t.Errorf("%d connections were made, want 1", n)
		}
	})
}

// listens makes a listener of each kind that a server may be given.
func listens(t testing.TB) map[string]net.Listener {
	all := map[string]net.Listener{}
	for name, at := range map[string][2]string{
		"IPv4": {"tcp4", "127.0.0.1:0"}, "IPv6": {"tcp6", "[::1]:0"}, "Unix": {"unix", filepath.Join(t.TempDir(), "s")},
	} {
		ln, err := net.Listen(at[0], at[1])
		if err != nil && name == "IPv6" {
			t.Logf("SKIPPED: %s: %v; run where loopback has IPv6", name, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = ln
	}
	return all
}

// reach asks once through a listener.
func reach(t testing.TB, a net.Addr) (string, error) {
	d := net.Dialer{Timeout: suitePatience}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, a.Network(), a.String())
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: suitePatience}).Get("http://x/")
	if err != nil {
		return "", err
	}
	return text(t, resp, nil), nil
}

// TestSuiteManyListeners serves several listeners at a time: one that is closed leaves the others
// alone, and Shutdown ends all.
func TestSuiteManyListeners(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			fmt.Fprintf(w, "%s %s", at.Network(), at)
		})
		ends, all := map[string]chan error{}, listens(t)
		for name, ln := range all {
			end := make(chan error, 1)
			ends[name] = end
			go func() { end <- s.Serve(ln) }()
		}
		ask := func(without string) {
			for name, ln := range all {
				got, err := reach(t, ln.Addr())
				if want := ln.Addr().Network() + " " + ln.Addr().String(); name != without && got != want {
					t.Errorf("%s, without %s: the answer is %q, %v, want %q", name, without, got, err, want)
				} else if name == without && err == nil {
					t.Errorf("%s is closed, and answers %q", name, got)
				}
			}
			if got := s.get(t, "/"); got.status() != 200 {
				t.Errorf("the first listener, without %s: the answer is %v", without, got)
			}
		}
		ask("")
		all["Unix"].Close()
		if err := take(t, ends["Unix"], "Serve of a closed listener to end"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve of a closed listener gives %v", err)
		}
		ask("Unix")
		if err := s.Shutdown(within(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		for name, ln := range all {
			if name != "Unix" {
				if err := take(t, ends[name], "Serve to end"); !errors.Is(err, server.ErrClosed) {
					t.Errorf("%s: after Shutdown Serve gives %v", name, err)
				}
			}
			if got, err := reach(t, ln.Addr()); err == nil {
				t.Errorf("%s: after Shutdown the answer is %q", name, got)
			}
		}
	})
}
