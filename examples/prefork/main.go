// Command prefork serves a greeting by some processes on one port. Restart them by SIGHUP, upgrade
// them by SIGUSR2 once another program lies here, end them by SIGTERM:
//
//	go build -o /tmp/greet ./examples/prefork && /tmp/greet -listen 127.0.0.1:8080 -workers 2
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/tallywheel/tallywheel/prefork"
	"github.com/tallywheel/tallywheel/server"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	workers := flag.Int("workers", 0, "processes; 0: one for each CPU")
	std := flag.Bool("std", false, "serve by net/http instead of package server")
	flag.Parse()
	if err := run(prefork.Config{Listen: []string{*listen}, Workers: *workers}, *std); err != nil {
		log.Fatal(err)
	}
}

func run(cfg prefork.Config, std bool) error {
	return prefork.Run(context.Background(), cfg, func(w *prefork.Worker) error {
		h := w.Handler(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(out, "worker %d, process %d\n", w.Slot(), os.Getpid())
		}))
		if std {
			return w.Serve(&http.Server{Handler: h})
		}
		s, err := server.New(server.Config{Handler: h, Loops: 1})
		if err != nil {
			return err
		}
		return w.Serve(s)
	})
}
