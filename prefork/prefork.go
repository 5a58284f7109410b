package prefork

import "context"

// Run runs worker in Config.Workers processes and returns when they have ended: because ctx has, by
// SIGTERM or SIGINT (a second one kills), or since no worker can be kept alive, which is an error.
// SIGHUP restarts the workers one after the other; SIGUSR2 upgrades to the program that now lies at
// Config.Path, workers and master.
//
// Run starts the program again for each worker, with the same arguments. There Run calls worker and
// returns its error: what main does before Run, all of them do; ctx is the master's alone.
func Run(ctx context.Context, cfg Config, worker func(*Worker) error) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	return run(ctx, cfg, worker)
}
