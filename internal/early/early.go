// Package early catches SIGHUP from the first moment on in which a program of Go can: packages are
// made ready for ten milliseconds and more before main, and a reload that is asked for meanwhile
// would end the program. Import it from main alone.
package early

import (
	"os"
	"os/signal"
	"syscall"
)

// Hangups has the SIGHUP that came since, in a program whose first argument is run; in another one
// SIGHUP does what it does.
var Hangups = make(chan os.Signal, 1)

func init() {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		signal.Notify(Hangups, syscall.SIGHUP)
	}
}
