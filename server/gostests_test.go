package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

var (
	gosTests  = flag.String("gos-tests", "", "run those of Go's own HTTP tests in TestGosOwn; . is all of them")
	gosPlaces = flag.String("gos-places", ".", "… on those engines and modes")
	// one that measures time may fail on a busy machine
	gosTries = flag.Int("gos-tries", 3, "… each until it passes, so often at most")
)

// TestGosOwn runs the tests of package net/http, of the Go that is installed, against the server:
// each in a process of its own, by net/http itself and by each engine. Three files of
// testdata/gostests are laid over its net/http and crypto/tls; with them http.Server.Serve hands a
// TCP listener to a server.Server that has the same handler, time-outs and hooks. What net/http
// passes, the engines must, but for what differs says, and, in mode coroutine, notForCoroutines.
func TestGosOwn(t *testing.T) {
	if *gosTests == "" {
		t.Skip("SKIPPED: Go's own tests, which take minutes; go test ./server -run GosOwn -gos-tests . -v -timeout 60m")
	}
	goroot := strings.TrimSpace(output(t, exec.Command("go", "env", "GOROOT")))
	folder := filepath.Join(goroot, "src/net/http")
	names := testsOf(t, folder)
	if len(names) == 0 {
		t.Skipf("SKIPPED: %s has no tests of net/http; install Go from its own archive, with src", goroot)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !regexp.MustCompile(*gosTests).MatchString(n) })
	g := gosRun{folder: folder, bin: laidOver(t, goroot), notes: t.TempDir()}
	yardstick := g.all(place{}, names)
	t.Logf("%-18s %s", "net/http", verdicts(yardstick))
	names = slices.DeleteFunc(names, func(n string) bool { return yardstick[n].verdict != "PASS" })
	reached := names
	for _, p := range places(t, server.Goroutine, server.Coroutine) {
		if !regexp.MustCompile(*gosPlaces).MatchString(p.String()) {
			continue
		}
		these := names
		if p.Mode == server.Coroutine {
			these = reached // the others would be net/http's
		}
		got := g.all(p, these)
		t.Logf("%-18s %s", p, verdicts(got))
		reached = slices.DeleteFunc(slices.Clone(these), func(n string) bool { return !got[n].reached })
		for _, n := range slices.Sorted(maps.Keys(got)) {
			r := got[n]
			switch why := whyNot(p, n); {
			case r.verdict == "PASS":
			case why != "":
				t.Logf("%s differs on %s, as it is to: %s", n, p, why)
			default:
				t.Errorf("%s, which net/http passes, says %s on %s, %d tries:\n%s", n, r.verdict, p, r.tries, r.said)
			}
		}
	}
}

// whyNot says why a test need not pass on a place; "": it must.
func whyNot(p place, test string) string {
	why := besides[test]
	if !p.std() {
		why = cmp.Or(why, differs[test])
	}
	if p.Mode == server.Coroutine {
		for does, tests := range notForCoroutines {
			if slices.Contains(strings.Fields(tests), test) {
				why = cmp.Or(why, does)
			}
		}
	}
	return why
}

// besides is what says nothing of the server, by the test that fails for it on each engine.
var besides = map[string]string{
	"TestServerShutdown": "it asks net/http for its own table of connections",
}

// differs is what engines epoll and uring do in another way on purpose, by the test that shows it.
var differs = map[string]string{
	"TestLinuxSendfile":                "a file of less than 16 KiB goes out with the head, in one call",
	"TestServerHandlersCanHandleH2PRI": "an HTTP/2 preface without TLS is 505",
	"TestServerIdleTimeout":            "half a head at the end of its time is answered by 408",
}

// notForCoroutines are the tests whose handlers do what mode coroutine is not for, by that.
var notForCoroutines = map[string]string{
	"it hijacks, and the request asks for no upgrade": `TestBadResponseAfterReadingBody
		TestClientTimeoutKillsConn_AfterHeaders TestClientTimeoutKillsConn_BeforeHeaders TestDisableKeepAliveUpgrade
		TestHijackAfterCloseNotifier TestInvalidHeaderResponse TestNoBodyOnChunked304Response
		TestResponseControllerHijack TestServerConnState TestServerFlushAndHijack TestServerHijackGetsBackgroundByte
		TestServerHijackGetsBackgroundByte_big TestServerHijackGetsFullBody TestServerWriteHijackZeroBytes
		TestTransportIgnore1xxResponses TestTransportIgnores408 TestTransportIssue10457
		TestTransportNoReuseAfterEarlyResponse TestTransportPersistConnLeakNeverIdle TestTransportTreat101Terminal
		TestWriteHeaderNoCodeCheck_h1hijack TestWriteHeaderSwitchingProtocols`,
	"it waits for a channel, a group or its context's end, and holds the loop": `TestCancelRequestMidBody
		TestClientTimeout TestClientTimeoutCancel TestCloseNotifier TestEarlyHintsRequest TestHijackBeforeRequestBodyRead
		TestInterruptWithPanic TestResponseControllerFlush TestResponseControllerSetFutureWriteDeadline
		TestServerRequestContextCancel_ConnClose TestStreamingGet TestTransportCancelRequest
		TestTransportCancelRequestBeforeDo TestTransportCancelRequestWithBody TestTransportMaxPerHostIdleConns
		TestTransportPersistConnLeak TestTransportResponseHeaderTimeout TestTransportSocketLateBinding`,
	"it sleeps on the loop, so that its write deadline does not pass": `TestServerKeepAliveAfterWriteError
		TestWriteDeadlineEnforcedPerStream`,
	"its body is read on another goroutine": `TestConcurrentReadWriteReqBody TestTransportAndServerSharedBodyRace`,
}

// gosRun is what runs of the tests have in common.
type gosRun struct {
	folder, bin, notes string
}

// gosResult is what has become of a test.
type gosResult struct {
	verdict string // PASS, FAIL, SKIP, or what ended the process
	reached bool   // the server
	tries   int
	said    string
}

// all runs tests, several at a time, on a place; the zero place is net/http.
func (g *gosRun) all(p place, names []string) map[string]gosResult {
	results := map[string]gosResult{}
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan string)
	for range 2 * runtime.GOMAXPROCS(0) { // most of them wait most of the time
		group.Go(func() {
			for n := range next {
				var r gosResult
				tries := *gosTries
				if p != (place{}) && whyNot(p, n) != "" {
					tries = 1
				}
				for try := 1; try <= tries && r.verdict != "PASS" && r.verdict != "SKIP"; try++ {
					r = g.one(p, n)
					r.tries = try
				}
				mu.Lock()
				results[n] = r
				mu.Unlock()
			}
		})
	}
	for _, n := range names {
		next <- n
	}
	close(next)
	group.Wait()
	return results
}

// one runs a test once.
func (g *gosRun) one(p place, name string) gosResult {
	notes := filepath.Join(g.notes, p.String()+name)
	defer os.Remove(notes)
	cmd := exec.Command(g.bin, "-test.run", "^"+name+"$", "-test.v", "-test.timeout", "1m")
	cmd.Dir = g.folder
	cmd.Env = append(os.Environ(), "TALLYWHEEL_ENGINE="+string(p.Engine), "TALLYWHEEL_MODE="+string(p.Mode),
		"TALLYWHEEL_NOTES="+notes)
	said, err := cmd.CombinedOutput()
	r := gosResult{verdict: fmt.Sprint(err), said: lastOf(said, 3000)}
	if m := regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): ` + name + ` `).FindSubmatch(said); m != nil {
		r.verdict = string(m[1])
	}
	note, _ := os.ReadFile(notes) // none, if no server was made
	r.reached = p != (place{}) && bytes.Contains(note, []byte(p.Mode))
	return r
}

func lastOf(b []byte, n int) string { return string(b[max(len(b)-n, 0):]) }

// verdicts counts verdicts: "535 tests, 300 reach the server; 500 PASS, …".
func verdicts(results map[string]gosResult) string {
	reached, again := 0, 0
	of := map[string]int{}
	for _, r := range results {
		if r.reached {
			reached++
		}
		if r.tries > 1 && r.verdict == "PASS" {
			again++
		}
		of[r.verdict]++
	}
	s := fmt.Sprintf("%d tests, %d reach the server; ", len(results), reached)
	for _, v := range slices.Sorted(maps.Keys(of)) {
		s += fmt.Sprintf("%d %s, ", of[v], v)
	}
	return s + fmt.Sprintf("%d not at the first try", again)
}

// testsOf lists the tests of package http_test, but for one without a name for its T, which is a
// part of another.
func testsOf(t *testing.T, folder string) (names []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src := contents(t, f)
		if !regexp.MustCompile(`(?m)^package http_test$`).MatchString(src) {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`).FindAllStringSubmatch(src, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

func contents(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// laidOver builds the tests of net/http with ours laid over it.
func laidOver(t *testing.T, goroot string) (bin string) {
	src := contents(t, filepath.Join(goroot, "src/net/http/server.go"))
	for _, into := range []struct{ head, code string }{
		{"func (s *Server) Close() error {", "if done, err := s.endOthers(OtherServer.Close); done { return err }"},
		{
			"func (s *Server) Shutdown(ctx context.Context) error {",
			"if done, err := s.endOthers(func(o OtherServer) error { return o.Shutdown(ctx) }); done { return err }",
		},
		{
			"func (s *Server) SetKeepAlivesEnabled(v bool) {",
			"for _, o := range s.others() { o.SetKeepAlivesEnabled(v) }",
		},
		{"", "if done, err := s.serveOther(l); done { return err }\n\torigListener := l"},
	} {
		_, last, _ := strings.Cut(into.code, "\n\t") // of code that stands before a line
		place := cmp.Or(into.head, last)
		if strings.Count(src, place) != 1 {
			t.Skipf("SKIPPED: net/http of %s has no place for %q; adapt laidOver to it", goroot, into.code)
		}
		src = strings.Replace(src, place, into.head+"\n"+into.code+"\n", 1)
	}
	dir := t.TempDir()
	std := filepath.Join(goroot, "src")
	replace := map[string]string{filepath.Join(std, "net/http/server.go"): filepath.Join(dir, "server.go")}
	for to, from := range map[string]string{
		"net/http/other.go": "http.go.txt", "net/http/other_test.go": "serve_test.go.txt",
		"crypto/tls/other.go": "tls.go.txt",
	} {
		from, err := filepath.Abs(filepath.Join("testdata/gostests", from))
		if err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(std, to)] = from
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "server.go"), []byte(src))
	writeFile(t, filepath.Join(dir, "overlay.json"), overlay)
	bin = filepath.Join(dir, "http.test")
	output(t, exec.Command("go", "test", "-vet=off", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin,
		"net/http"))
	return bin
}

func writeFile(t *testing.T, file string, b []byte) {
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, cmd *exec.Cmd) string {
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return string(b)
}
