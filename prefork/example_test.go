package prefork_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/tallywheel/tallywheel/prefork"
)

// Any handler on as many workers as there are CPUs. SIGHUP restarts them, SIGUSR2 upgrades them to
// the program that lies there now, SIGTERM ends them; no request is lost.
func Example() {
	cfg := prefork.Config{Listen: []string{"127.0.0.1:8080"}, InFlight: 64, Queue: 256}
	err := prefork.Run(context.Background(), cfg, func(w *prefork.Worker) error {
		hello := func(out http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(out, "worker %d, process %d\n", w.Slot(), os.Getpid())
		}
		return w.Serve(&http.Server{Handler: w.Handler(http.HandlerFunc(hello))})
	})
	if err != nil {
		log.Fatal(err)
	}
}
