package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/server"
)

// eachServer runs a test against every engine and mode that runs net/http's handlers.
func eachServer(t *testing.T, handler http.Handler, f func(t *testing.T, s *server.Server, addr string)) {
	for _, engine := range []server.Engine{server.Std, server.Epoll, server.Uring} {
		for _, mode := range []server.Mode{server.Goroutine, server.Coroutine} {
			if engine == server.Std && mode == server.Coroutine {
				continue
			}
			t.Run(fmt.Sprintf("%s-%s", engine, mode), func(t *testing.T) {
				if err := server.Available(engine); err != nil {
					t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
				}
				s, err := server.New(server.Config{
					Handler: handler, Engine: engine, Mode: mode, Loops: 2,
					Log: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- s.Serve(ln) }()
				f(t, s, ln.Addr().String())
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, server.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
}

// mirror answers with what it was sent.
var mirror = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Method", r.Method)
	if len(b) == 0 {
		fmt.Fprintf(w, "Hello, %s!", r.URL.Path)
		return
	}
	_, _ = w.Write(b)
})

func run(t *testing.T, in []byte, program string, args ...string) string {
	t.Helper()
	c := exec.Command(program, args...)
	c.Stdin = bytes.NewReader(in)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %.500s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestCurl(t *testing.T) {
	curl := testenv.Program(t, "curl", "apt install curl")
	large := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	eachServer(t, mirror, func(t *testing.T, _ *server.Server, addr string) {
		url := "http://" + addr
		if got := run(t, nil, curl, "-sS", url+"/a", url+"/b"); got != "Hello, /a!Hello, /b!" {
			t.Errorf("two requests on a connection give %q", got)
		}
		for name, args := range map[string][]string{
			"with a length":   {"--data-binary", "@-"},
			"in chunks":       {"-X", "POST", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-"},
			"with an Expect":  {"--data-binary", "@-", "-H", "Expect: 100-continue"},
			"put, in chunks":  {"-T", "-"},
			"HTTP/1.0":        {"-0", "--data-binary", "@-"},
			"after a refusal": {"--data-binary", "@-", "-H", "Connection: close"},
		} {
			if got := run(t, large, curl, append([]string{"-sS", url}, args...)...); got != string(large) {
				t.Errorf("%s: %d bytes came back of %d", name, len(got), len(large))
			}
		}
		if got := run(t, nil, curl, "-sSI", url); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") ||
			!strings.Contains(got, "Date: ") {
			t.Errorf("HEAD gives %q", got)
		}
	})
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in`)

func TestWrk(t *testing.T) {
	wrk := testenv.Program(t, "wrk", "apt install wrk")
	eachServer(t, mirror, func(t *testing.T, s *server.Server, addr string) {
		const conns = 50
		out := run(t, nil, wrk, "-t2", "-c"+strconv.Itoa(conns), "-d1s", "--timeout", "1m", "http://"+addr+"/")
		m := wrkRequests.FindStringSubmatch(out)
		if m == nil || strings.Contains(out, "Socket errors") || strings.Contains(out, "Non-2xx") {
			t.Fatalf("wrk says %s", out)
		}
		n, _ := strconv.ParseUint(m[1], 10, 64)
		testenv.Until(t, 10*time.Second, "the connections are gone", func() bool { return s.Stats().Open == 0 })
		// wrk does not count what is on the way at the end
		if st := s.Stats(); st.Requests < n || st.Requests > n+2*conns || st.Accepted < conns {
			t.Errorf("wrk counts %d requests, the server %d on %d connections", n, st.Requests, st.Accepted)
		}
	})
}

func TestBehindNginx(t *testing.T) {
	nginx := testenv.Program(t, "nginx", "apt install nginx-light")
	eachServer(t, mirror, func(t *testing.T, _ *server.Server, addr string) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(dir, "front")
		conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr crit;
events {}
http {
  access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  client_max_body_size 10m;
  upstream back { server %[2]s; keepalive 4; }
  server { listen unix:%[3]s; location / { proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; } }
}
`, dir, addr, socket)
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Start(t, nginx, "-p", dir, "-e", "stderr", "-c", file)
		testenv.Until(t, 10*time.Second, "nginx listens", func() bool { // the file is there before that
			c, err := net.Dial("unix", socket)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr, Timeout: time.Minute}
		for i := range 200 {
			body := bytes.Repeat([]byte{byte('a' + i%26)}, (i%7)*30_000+1)
			// without a length: chunked
			resp, err := c.Post("http://front/", "text/plain", io.MultiReader(bytes.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("request %d: %d bytes came back of %d, %v", i, len(got), len(body), err)
			}
		}
	})
}

func TestPythonAndNode(t *testing.T) {
	python := testenv.Python(t, "requests", "apt install python3-requests")
	node := testenv.Program(t, "node", "apt install nodejs")
	const py = `
import requests, sys
s = requests.Session()
for i in range(50):
    body = b"x" * (i * 1000 + 1)
    r = s.post(sys.argv[1], data=body)
    assert r.status_code == 200 and r.content == body, (i, r.status_code, len(r.content))
    r = s.post(sys.argv[1], data=iter([b"in ", b"chunks"]))
    assert r.text == "in chunks", r.text
    assert s.get(sys.argv[1] + "/p").text == "Hello, /p!"
assert s.head(sys.argv[1]).headers["X-Method"] == "HEAD"
print("good")
`
	const js = `
const url = process.argv[1];
(async () => {
  const all = [];
  for (let i = 0; i < 50; i++) all.push((async () => {
    const body = "y".repeat(i * 1000 + 1);
    const r = await fetch(url, {method: "POST", body});
    if (await r.text() !== body) throw new Error("body " + i);
    const g = await fetch(url + "/n" + i);
    if (await g.text() !== "Hello, /n" + i + "!") throw new Error("get " + i);
  })());
  await Promise.all(all);
  console.log("good");
})().catch(e => { console.error(e); process.exit(1); });
`
	eachServer(t, mirror, func(t *testing.T, _ *server.Server, addr string) {
		if got := run(t, nil, python, "-c", py, "http://"+addr); got != "good\n" {
			t.Errorf("Python says %s", got)
		}
		if got := run(t, nil, node, "-e", js, "http://"+addr); got != "good\n" {
			t.Errorf("Node says %s", got)
		}
	})
}
