package server_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// BenchmarkH2 says what a request by HTTP/2 costs, 32 at a time on one connection, client and
// server together:
//
//	go test ./server -run '^$' -bench H2 -count 7
func BenchmarkH2(b *testing.B) {
	const streams = 32
	for _, w := range ways(b, ofHTTP, server.Goroutine) {
		b.Run(w.String(), func(b *testing.B) {
			r := serve(b, w, server.Config{
				TLS: &tls.Config{Certificates: []tls.Certificate{newCert(b)}},
				Handler: http.HandlerFunc(func(w http.ResponseWriter,
					_ *http.Request,
				) {
					_, _ = io.WriteString(w, "hello")
				}),
			})
			// the certificate is nobody's
			to := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer to.CloseIdleConnections()
			c := &http.Client{Transport: to}
			ask := func() {
				resp, err := c.Get("https://" + r.addr)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ProtoMajor != 2 {
					b.Errorf("%s: %v", resp.Proto, err)
				}
				_ = resp.Body.Close()
			}
			ask() // there is a connection
			b.SetParallelism((streams + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
			began := cpu(b)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					ask()
				}
			})
			b.ReportMetric(float64(cpu(b)-began)/float64(time.Microsecond)/float64(b.N), "cpu-µs/op")
		})
	}
}
