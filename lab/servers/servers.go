// Package servers lists the HTTP servers that experiments compare.
package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// Modes are the ways in which handlers run.
var Modes = []string{"inline", "coroutine", "goroutine"}

// Own are ours, and net/http as a program uses it without us. work is what a request costs: hello
// or json.
func Own(work string) []lab.Contestant {
	return append([]lab.Contestant{netHTTP(work), lab.Ours("tallywheel/std", "http", "engine=std", "work="+work)}, engines(work, Modes)...)
}

// OwnAuto are net/http, the engine that is taken without asking for one, and the engines in the
// given modes. work is hello, bodies or file.
func OwnAuto(work string, modes []string) []lab.Contestant {
	auto := lab.Ours("tallywheel/auto", "http", "engine=auto", "mode=goroutine", "work="+work).But("what a server is that asks for nothing: handlers on goroutines")
	return append([]lab.Contestant{netHTTP(work), auto}, engines(work, modes)...)
}

func netHTTP(work string) lab.Contestant {
	return lab.Ours("net/http", "http", "engine=net/http", "work="+work)
}

func engines(work string, modes []string) (all []lab.Contestant) {
	for _, engine := range []string{"uring", "epoll"} {
		for _, mode := range modes {
			c := lab.Ours("tallywheel/"+engine+"-"+mode, "http", "engine="+engine, "mode="+mode, "work="+work)
			if mode == "inline" {
				c = c.But("a handler of its own kind; the other modes run net/http's")
			}
			all = append(all, c)
		}
	}
	return all
}

const (
	noParser = "no HTTP: it answers every head that ends and looks at nothing in it"
	itsOwn   = "handlers of its own kind"
)

// Peers are other people's in Go. work is hello or json.
func Peers(work string) []lab.Contestant {
	p := lab.Peers("http")
	return []lab.Contestant{p.As("gnet", "gnet", "work="+work).But(noParser), FastHTTP(work), p.As("hertz", "hertz", "work="+work).But(itsOwn)}
}

// FastHTTP is the one of them that can do all work.
func FastHTTP(work string) lab.Contestant {
	return lab.Peers("http").As("fasthttp", "fasthttp", "work="+work).But(itsOwn)
}

// Gnet is the one that closes connections that ask for it.
func Gnet() lab.Contestant {
	return lab.Peers("http").As("gnet", "gnet", "work=close").But("no HTTP: it looks for the end of the head, and in it for Connection: close")
}

// C are servers that read what they must of requests: method, length, body, and whether the
// connection is to end. args are theirs besides.
func C(args ...string) []lab.Contestant {
	const reads = "reads method, Content-Length, Connection and body, no more: no chunks, no pipelining"
	args = append([]string{"http"}, args...)
	return []lab.Contestant{
		lab.C("http_parse_uring.c", needsRing, "-luring", "-lpthread").As("c/liburing", args...).But(reads),
		lab.C("http_parse_epoll.c", needsC, "-lpthread").As("c/epoll", args...).But(reads),
	}
}

const (
	needsC    = "apt install gcc"
	needsRing = "apt install gcc liburing-dev"
)

// Others are those in C and Rust, and nginx. They can say hello only.
func Others() []lab.Contestant {
	return []lab.Contestant{
		lab.C("http_uring.c", needsRing, "-luring", "-lpthread").As("c/liburing", "http").But(noParser),
		lab.C("http_epoll.c", needsC, "-lpthread").As("c/epoll", "http").But(noParser),
		lab.Rust("http.rs").As("rust/epoll", "http").But(noParser),
		Nginx(func(*lab.Bench) string { return `default_type text/plain; return 200 "Hello, World!";` }),
	}
}

// Nginx is Debian's; location says what it answers.
func Nginx(location func(*lab.Bench) string) lab.Contestant {
	return lab.Contestant{
		Name: "nginx", Program: lab.Tool("nginx", "apt install nginx-light"), Note: "one process, so one CPU",
		Command: func(b *lab.Bench, p lab.Params, _ time.Duration) []string {
			conf := filepath.Join(b.Dir, "nginx.conf")
			text := fmt.Sprintf(`daemon off; master_process off; worker_rlimit_nofile 65536; pid %[1]s/nginx.pid; error_log stderr crit;
events { worker_connections 60000; }
http { access_log off; keepalive_requests 1000000000; server { listen %[2]s backlog=4096; location / { %[3]s } } }
`, b.Dir, p["addr"], location(b))
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				return []string{"-t"} // it says that there is no configuration
			}
			return []string{"-p", b.Dir, "-e", "stderr", "-c", conf}
		},
	}
}
