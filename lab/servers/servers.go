// Package servers lists the HTTP servers that experiments compare.
package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/server"
)

// Fleet is servers that do one work: ours, net/http, and other people's in Go.
type Fleet struct {
	NetHTTP *lab.Contestant // as a program uses it without us
	Std     *lab.Contestant // package server by net/http
	Auto    *lab.Contestant // the engine that is taken without asking for one

	UringInline, UringCoroutine, UringGoroutine *lab.Contestant
	EpollInline, EpollCoroutine, EpollGoroutine *lab.Contestant

	Gnet, FastHTTP, Hertz *lab.Contestant
}

// With makes the servers that do a work. Of the peers gnet and hertz can say hello and JSON only.
func With(w Work) *Fleet {
	of := func(name string, engine server.Engine, mode server.Mode) *lab.Contestant {
		return lab.Ours("tallywheel/"+name, Kind{Engine: engine, Mode: mode}.Serves(w))
	}
	const lean = "a handler of its own kind; the other modes run net/http's"
	peer, work := lab.Peers("http"), "work="+w.name
	return &Fleet{
		NetHTTP: lab.Ours("net/http", Kind{}.Serves(w)),
		Std:     of("std", server.Std, ""),
		Auto: of("auto", server.Auto,
			server.Goroutine).But("what a server is that asks for nothing: handlers on goroutines"),

		UringInline:    of("uring-inline", server.Uring, server.Inline).But(lean),
		UringCoroutine: of("uring-coroutine", server.Uring, server.Coroutine),
		UringGoroutine: of("uring-goroutine", server.Uring, server.Goroutine),
		EpollInline:    of("epoll-inline", server.Epoll, server.Inline).But(lean),
		EpollCoroutine: of("epoll-coroutine", server.Epoll, server.Coroutine),
		EpollGoroutine: of("epoll-goroutine", server.Epoll, server.Goroutine),

		Gnet:     peer.As("gnet", "gnet", work).But(noParser),
		FastHTTP: peer.As("fasthttp", "fasthttp", work).But(itsOwn),
		Hertz:    peer.As("hertz", "hertz", work).But(itsOwn),
	}
}

// Engines are ours, in every mode.
func (f *Fleet) Engines() []*lab.Contestant {
	return []*lab.Contestant{
		f.UringInline, f.UringCoroutine, f.UringGoroutine, f.EpollInline, f.EpollCoroutine,
		f.EpollGoroutine,
	}
}

// Own are ours and net/http, where the engine is asked for.
func (f *Fleet) Own() []*lab.Contestant {
	return append([]*lab.Contestant{f.NetHTTP, f.Std}, f.Engines()...)
}

// OwnAuto are ours and net/http, and the engine that is taken without asking for one.
func (f *Fleet) OwnAuto() []*lab.Contestant {
	return append([]*lab.Contestant{f.NetHTTP, f.Auto}, f.Engines()...)
}

// Peers are other people's in Go.
func (f *Fleet) Peers() []*lab.Contestant {
	return []*lab.Contestant{f.Gnet, f.FastHTTP, f.Hertz}
}

const (
	noParser = "no HTTP: it answers every head that ends and looks at nothing in it"
	itsOwn   = "handlers of its own kind"
)

// ClosingGnet is gnet that closes connections that ask for it.
func ClosingGnet() *lab.Contestant {
	return lab.Peers("http").As("gnet", "gnet",
		"work=close").But("no HTTP: it looks for the end of the head, and in it for Connection: close")
}

// C are servers that read what they must of requests: method, length, body, and whether the
// connection is to end. args are theirs besides.
func C(args ...string) (ring, epoll *lab.Contestant) {
	const reads = "reads method, Content-Length, Connection and body, no more: no chunks, no pipelining"
	args = append([]string{"http"}, args...)
	return lab.C("http_parse_uring.c", needsRing, "-luring", "-lpthread").As("c/liburing", args...).But(reads),
		lab.C("http_parse_epoll.c", needsC, "-lpthread").As("c/epoll", args...).But(reads)
}

const (
	needsC    = "apt install gcc"
	needsRing = "apt install gcc liburing-dev"
)

// HelloRing is a ring in C that can say hello only.
func HelloRing() *lab.Contestant {
	return lab.C("http_uring.c", needsRing, "-luring", "-lpthread").As("c/liburing", "http").But(noParser)
}

// HelloOthers are those in C and Rust that can say hello only, and nginx.
func HelloOthers() []*lab.Contestant {
	return []*lab.Contestant{
		lab.C("http_epoll.c", needsC, "-lpthread").As("c/epoll", "http").But(noParser),
		lab.Rust("http.rs").As("rust/epoll", "http").But(noParser),
		Nginx(func(*lab.Bench) string { return `default_type text/plain; return 200 "Hello, World!";` }),
	}
}

// Nginx is Debian's; location says what it answers.
func Nginx(location func(*lab.Bench) string) *lab.Contestant {
	return &lab.Contestant{
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
