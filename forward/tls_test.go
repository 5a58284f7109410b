package forward

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/forward/batch"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.file, _ = a.issue("test authority", template)
	return a
}

// issue makes a certificate, and returns the files of it and of its key.
func (a *authority) issue(name string, template *x509.Certificate) (cert, key string) {
	a.t.Helper()
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, a.key = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	bare, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: bare},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

// A server that wants certificates, and a user, gets what it wants, or it is said what is wrong.
func TestTLS(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	cert, key := a.issue("server",
		&x509.Certificate{
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
	mine, mineKey := a.issue("recorder", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if b, err := os.ReadFile(a.file); err != nil || !pool.AppendCertsFromPEM(b) {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *server.Options) {
		o.TLS, o.TLSVerify, o.Username, o.Password = true, true, "line", "a-password"
		o.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert,
		}
	})
	url := strings.Replace(w.url(), "nats://", "tls://", 1)
	c := &w.cfg.Forward[0]
	c.URLs, c.User, c.Password = []string{url}, "line", "a-password"
	w.add(20, "a", "b")
	for _, bad := range []struct {
		tls    config.ClientTLS
		reason string
		why    string
	}{
		{config.ClientTLS{Cert: mine, Key: mineKey}, reasonTLS, "certificate signed by unknown authority"},
		{
			config.ClientTLS{CA: stranger.file, Cert: mine, Key: mineKey},
			reasonTLS,
			"certificate signed by unknown authority",
		},
		{config.ClientTLS{CA: a.file}, reasonTLS, "certificate"},
		{config.ClientTLS{CA: a.file + ".gone"}, reasonConfig, "tls.ca: "},
		{config.ClientTLS{CA: key}, reasonConfig, "has no certificate"},
	} {
		c.TLS = bad.tls
		w.forward()
		w.fails("down", bad.reason)
		if why := w.book().Why; !strings.Contains(why, bad.why) {
			t.Errorf("%+v: it says %q, want %q", bad.tls, why, bad.why)
		}
	}
	good := config.ClientTLS{CA: a.file, Cert: mine, Key: mineKey}
	c.TLS, c.Password = good, "another-password"
	w.forward()
	w.fails("down", reasonCredentials)
	c.Password = "a-password"
	w.forward()
	w.caughtUp()
	got := map[string][]frame{}
	tail := Tail{URL: strings.Replace(url, "://", "://line:a-password@", 1), TLS: good, Stream: "TALLYWHEEL", All: true}
	tail.OnBroken = func(err error) { t.Error(err) }
	tail.OnOther = func(_ string, err error) { t.Error(err) }
	tail.Each = func(m batch.Message) error {
		subject := "tallywheel." + Escape(m.Source)
		for r := range m.Records() {
			got[subject] = append(got[subject], frame{r.Seq, string(r.Data)})
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := tail.Run(ctx); err != nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error(err)
	}
	same(t, got, logged(t, w.dir))
}

// The alert of a server that wants a certificate may be lost, and its end is all that comes then.
// It is said what to see to, unless we had one, or no TLS.
func TestEndThatMayWantACertificate(t *testing.T) {
	cut := &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	for _, c := range []struct {
		err  error
		url  string
		cert string
		is   bool
	}{
		{cut, "mqtts://a", "", true},
		{fmt.Errorf("failed: %w", io.EOF), "tls://a", "", true},
		{cut, "mqtts://a", "cert", false},
		{cut, "mqtt://a", "", false},
		{cut, "nats://a", "", false},
		{errors.New("another"), "tls://a", "", false},
	} {
		err := wantsCertificate(c.err, &config.Forward{URLs: []string{c.url}, TLS: config.ClientTLS{Cert: c.cert}})
		var f *fault
		if errors.As(err, &f) != c.is || c.is && (f.reason != reasonTLS || !strings.Contains(f.Error(), "tls.cert")) {
			t.Errorf("%v of %s, certificate %q: %v", c.err, c.url, c.cert, err)
		}
	}
}
