package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// An http.Handler on the best engine that is allowed here.
func Example() {
	s, err := server.New(server.Config{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "you asked for %s", r.URL.Path)
		}),
		ReadHeaderTimeout: 10 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()

	resp, err := http.Get("http://" + ln.Addr().String() + "/tea")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("%s\n", b)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(s.Shutdown(ctx), <-ended)
	// Output:
	// you asked for /tea
	// <nil> http: Server closed
}

// A lean handler sees the request in the memory where it arrived, and runs on the thread that
// received it.
func Example_lean() {
	s, err := server.New(server.Config{Lean: func(w *server.LeanResponse, r *server.LeanRequest) {
		w.ContentType("text/plain")
		_, _ = w.Write(r.Path())
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = s.Serve(ln) }()
	resp, err := http.Get("http://" + ln.Addr().String() + "/lean")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("%s %s\n", resp.Header.Get("Content-Type"), b)
	fmt.Println(s.Close())
	// Output:
	// text/plain /lean
	// <nil>
}

// A protocol of one's own over TCP: the connection is a net.Conn, on whichever engine.
func Example_tcp() {
	s, err := server.New(server.Config{Conn: func(_ context.Context, c net.Conn) {
		lines := bufio.NewScanner(c)
		for lines.Scan() {
			fmt.Fprintf(c, "%s!\n", lines.Text())
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = s.Serve(ln) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(c, "hello")
	answer, _ := bufio.NewReader(c).ReadString('\n')
	fmt.Print(answer)
	c.Close()
	fmt.Println(s.Close())
	// Output:
	// hello!
	// <nil>
}
