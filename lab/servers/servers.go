// Package servers lists the HTTP servers that experiments compare.
package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// Own are ours, and net/http as a program uses it without us. work is what a request costs: hello or json.
func Own(work string) []lab.Contestant {
	all := []lab.Contestant{lab.Ours("net/http", "http", "engine=net/http", "work="+work), lab.Ours("tallywheel/std", "http", "engine=std", "work="+work)}
	for _, engine := range []string{"uring", "epoll"} {
		for _, mode := range []string{"inline", "coroutine", "goroutine"} {
			c := lab.Ours("tallywheel/"+engine+"-"+mode, "http", "engine="+engine, "mode="+mode, "work="+work)
			if mode == "inline" {
				c = c.But("a handler of its own kind; the other modes run net/http's")
			}
			all = append(all, c)
		}
	}
	return all
}

// Peers are other people's in Go.
func Peers(work string) []lab.Contestant {
	p := lab.Peers("http")
	return []lab.Contestant{
		p.As("gnet", "gnet", "work="+work).But("no HTTP: it answers every head that ends and looks at nothing in it"),
		p.As("fasthttp", "fasthttp", "work="+work).But("handlers of its own kind"),
		p.As("hertz", "hertz", "work="+work).But("handlers of its own kind"),
	}
}

const noParser = "no HTTP: it answers every head that ends and looks at nothing in it"

// Others are those in C and Rust, and nginx. They can say hello only.
func Others() []lab.Contestant {
	return []lab.Contestant{
		lab.C("http_uring.c", "apt install gcc liburing-dev", "-luring", "-lpthread").As("c/liburing", "http").But(noParser),
		lab.C("http_epoll.c", "apt install gcc", "-lpthread").As("c/epoll", "http").But(noParser),
		lab.Rust("http.rs").As("rust/epoll", "http").But(noParser),
		{
			Name: "nginx", Program: lab.Tool("nginx", "apt install nginx-light"), Note: "one process, so one CPU",
			Command: func(b *lab.Bench, p lab.Params, _ time.Duration) []string {
				conf := filepath.Join(b.Dir, "nginx.conf")
				text := fmt.Sprintf(`daemon off; master_process off; worker_rlimit_nofile 65536; pid %[1]s/nginx.pid; error_log stderr crit;
events { worker_connections 60000; }
http { access_log off; keepalive_requests 1000000000; server { listen %[2]s backlog=4096; location / { default_type text/plain; return 200 "Hello, World!"; } } }
`, b.Dir, p["addr"])
				if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
					return []string{"-t"} // it says that there is no configuration
				}
				return []string{"-p", b.Dir, "-e", "stderr", "-c", conf}
			},
		},
	}
}
