package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestTLSIsForConnHandlersToo: a ConnHandler of a server with Config.TLS gets connections by TLS on
// every engine, and nobody gets through to it in plain text.
func TestTLSIsForConnHandlersToo(t *testing.T) {
	eachWay(t, ways(t, ofConn, server.Goroutine), func(t *testing.T, w way) {
		if !inChild(t) {
			return
		}
		cert := newCert(t)
		r := serve(t, w, server.Config{
			TLS:  &tls.Config{Certificates: []tls.Certificate{cert}},
			Conn: func(_ context.Context, c net.Conn) { _, _ = io.Copy(c, c) },
		})
		c := tls.Client(dial(t, r.addr), &tls.Config{InsecureSkipVerify: true})
		if _, err := io.WriteString(c, "by TLS"); err != nil {
			t.Errorf("by TLS: %v", err)
		} else if b := make([]byte, 6); true {
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "by TLS" {
				t.Errorf("by TLS came back %q, %v", b, err)
			}
		}
		plain := dial(t, r.addr)
		_, _ = io.WriteString(plain, "in plain text, which is no record of TLS")
		_ = plain.CloseWrite()
		if got := ended(t, plain); string(got) == "in plain text, which is no record of TLS" {
			t.Error("in plain text the handler was reached, too")
		}
	})
}

// newCert makes a certificate that is quick to show.
func newCert(t testing.TB) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
