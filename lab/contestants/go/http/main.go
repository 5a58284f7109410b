// Command http is other people's HTTP servers. They serve at the parameter addr until they are killed; the parameter work is hello or json.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/valyala/fasthttp"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	addr, err := t.Address()
	if err != nil {
		return err
	}
	work := func() []byte { return []byte(contestant.Hello) }
	if t.Text("work") == "json" {
		work = contestant.JSON
	}
	switch t.Name {
	case "fasthttp":
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(c *fasthttp.RequestCtx) {
			c.SetContentType("text/plain")
			c.SetBody(work())
		}}
		return s.Serve(ln)
	case "hertz":
		hlog.SetLevel(hlog.LevelFatal)
		s := server.New(server.WithHostPorts(addr), server.WithDisablePrintRoute(true), server.WithIdleTimeout(time.Minute))
		s.GET("/", func(_ context.Context, c *app.RequestContext) { c.Data(200, "text/plain", work()) })
		s.Spin()
		return nil
	case "gnet":
		return gnet.Run(&plain{work: work}, "tcp://"+addr, gnet.WithMulticore(true), gnet.WithReusePort(true), gnet.WithNumEventLoop(runtime.GOMAXPROCS(0)), gnet.WithLogLevel(logging.ErrorLevel))
	}
	return fmt.Errorf("no contestant %q", t.Name)
}

// plain answers every head that ends, and looks at nothing in it: gnet has no HTTP of its own.
type plain struct {
	gnet.BuiltinEventEngine
	work func() []byte
}

// OnTraffic implements gnet.EventHandler.
func (p *plain) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	var out []byte
	used := 0
	for {
		i := bytes.Index(b[used:], []byte("\r\n\r\n"))
		if i < 0 {
			break
		}
		used += i + 4
		body := p.work()
		out = fmt.Appendf(out, "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", len(body))
		out = append(out, body...)
	}
	if _, err := c.Discard(used); err != nil {
		return gnet.Close
	}
	if _, err := c.Write(out); err != nil {
		return gnet.Close
	}
	return gnet.None
}
