package server_test

import (
	"flag"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

var h2spec = flag.String("h2spec", "", "run that program of h2spec in TestH2Spec")

// TestH2Spec asks engine std and each other in mode goroutine, by TLS, what h2spec asks of HTTP/2
// (RFC 9113 and 7541). All of them run net/http's code for it: none may fail what std passes.
func TestH2Spec(t *testing.T) {
	if *h2spec == "" {
		t.Skip("SKIPPED: h2spec; go install github.com/summerwind/h2spec/cmd/h2spec@latest, and say -h2spec PROGRAM")
	}
	sum, one := regexp.MustCompile(`(?m)^\d+ tests, .*$`), regexp.MustCompile(`(?m)^ *× (.*)$`)
	var byStd []string
	for _, p := range places(t, server.Goroutine) {
		tune, _ := secured(t)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that no answer comes before what is wrong with the body
			_, _ = io.WriteString(w, "an answer of some bytes")
		}, tune)
		_, port, err := net.SplitHostPort(s.addr)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(*h2spec, "--tls", "--insecure", "--host", "127.0.0.1", "--port", port)
		said, err := cmd.CombinedOutput()
		if !sum.Match(said) {
			t.Fatalf("%s: %v: %s", p, err, lastOf(said, 3000))
		}
		_, failures, _ := strings.Cut(string(said), "\nFailures:")
		var failed []string
		for _, m := range one.FindAllStringSubmatch(failures, -1) {
			failed = append(failed, m[1])
			if !p.std() && !slices.Contains(byStd, m[1]) {
				t.Errorf("%s fails what std passes: %s", p, m[1])
			}
		}
		if p.std() {
			byStd = failed
		}
		t.Logf("%s: %s; not:\n%s", p, sum.Find(said), strings.Join(failed, "\n"))
	}
}
