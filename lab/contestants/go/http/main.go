// Command http is other people's HTTP servers. They serve at the parameter addr until they are
// killed. The parameter work is hello, json, close (hello by a server that ends a connection when
// it is asked to, which those with HTTP of their own always do), bodies or file: as our contestants
// have them.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
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
	switch w := t.Text("work"); {
	case w == "json":
		work = contestant.JSON
	case (w == "bodies" || w == "file") && t.Name != "fasthttp":
		return errors.New("it says hello and json only")
	}
	switch t.Name {
	case "fasthttp":
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: fastHandler(t, work)}
		return s.Serve(ln)
	case "hertz":
		hlog.SetLevel(hlog.LevelFatal)
		s := server.New(server.WithHostPorts(addr), server.WithDisablePrintRoute(true),
			server.WithIdleTimeout(time.Minute))
		s.GET("/", func(_ context.Context, c *app.RequestContext) { c.Data(200, "text/plain", work()) })
		s.Spin()
		return nil
	case "gnet":
		var h gnet.EventHandler = &plain{work: work}
		if t.Text("work") == "close" {
			h = &closing{}
		}
		return gnet.Run(h, "tcp://"+addr, gnet.WithMulticore(true), gnet.WithReusePort(true),
			gnet.WithNumEventLoop(runtime.GOMAXPROCS(0)), gnet.WithLogLevel(logging.ErrorLevel))
	}
	return fmt.Errorf("no contestant %q", t.Name)
}

// fastHandler is fasthttp's handler. A page is handed over by SetBodyRaw, its way for memory that
// does not change.
func fastHandler(t *contestant.Turn, work func() []byte) fasthttp.RequestHandler {
	switch t.Text("work") {
	case "bodies":
		page := contestant.Page(t.Int("bytes", 0))
		return func(c *fasthttp.RequestCtx) {
			c.SetContentType("text/plain")
			if c.IsPost() {
				c.SetBody(contestant.DigestOf(c.PostBody()))
			} else {
				c.Response.SetBodyRaw(page)
			}
		}
	case "file":
		return fasthttp.FSHandler(filepath.Dir(t.Text("file")), 0)
	}
	return func(c *fasthttp.RequestCtx) {
		c.SetContentType("text/plain")
		c.SetBody(work())
	}
}

// closing reads as much of a head as it must: it answers one that is whole, and closes if it asks
// for that.
type closing struct {
	gnet.BuiltinEventEngine
}

// OnTraffic implements gnet.EventHandler.
func (*closing) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return gnet.None
	}
	end += 4
	closes := bytes.Contains(b[:end], []byte("\r\nConnection: close\r\n"))
	if _, err := c.Discard(end); err != nil {
		return gnet.Close
	}
	if _, err := c.Write(appendAnswer(nil, []byte(contestant.Hello), closes)); err != nil || closes {
		return gnet.Close
	}
	return gnet.None
}

// appendAnswer appends a whole answer, as a server does that has HTTP: nothing is formatted.
func appendAnswer(to, body []byte, closes bool) []byte {
	to = append(to, "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: "...)
	to = strconv.AppendInt(to, int64(len(body)), 10)
	if closes {
		to = append(to, "\r\nConnection: close"...)
	}
	to = append(to, "\r\n\r\n"...)
	return append(to, body...)
}

// plain answers every head that ends, and looks at nothing in it: gnet has no HTTP of its own. Each
// connection keeps the memory of its answers.
type plain struct {
	gnet.BuiltinEventEngine
	work func() []byte
}

// OnOpen implements gnet.EventHandler.
func (*plain) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(new([]byte))
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (p *plain) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	room := c.Context().(*[]byte)
	out, used := (*room)[:0], 0
	for {
		i := bytes.Index(b[used:], []byte("\r\n\r\n"))
		if i < 0 {
			break
		}
		used += i + 4
		out = appendAnswer(out, p.work(), false)
	}
	*room = out // Write keeps a copy of what the socket has no room for
	if _, err := c.Discard(used); err != nil {
		return gnet.Close
	}
	if _, err := c.Write(out); err != nil {
		return gnet.Close
	}
	return gnet.None
}
