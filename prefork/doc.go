// Package prefork runs a Go server in several processes on one port: a master, which opens the
// sockets and serves nobody, and workers, which it starts, restarts and upgrades without turning a
// client away.
//
//	err := prefork.Run(ctx, prefork.Config{Listen: []string{"127.0.0.1:8080"}}, func(w *prefork.Worker) error {
//		return w.Serve(&http.Server{Handler: w.Handler(mux)})
//	})
//
// # What it keeps
//
//   - The master's sockets stay open from its start to its end. Each slot has its own, by
//     SO_REUSEPORT; a worker gets a duplicate. Who connects while no worker accepts waits there.
//   - A worker is replaced by one that has said that it is ready. Then the old one accepts no more,
//     answers with Connection: close for as long as its clients need to leave (Config.LameDuck at
//     most), ends what is under way, and exits. After Config.DrainFor it is killed.
//   - An upgrade starts new workers in all slots. They serve once all are ready; if one is not,
//     they are ended before they have served anybody, and the old ones go on. Then the master
//     itself becomes the new program (Master.Renew): the same process, by execve(2), with the
//     sockets and the workers that it has. The new program has shown before that it can take over.
//   - The kill of a worker costs the requests that it holds: at most Config.MaxConns, where that is
//     set. Its socket is lent to another worker until its successor is ready, after a back-off that
//     doubles; a slot whose workers keep dying rests.
//   - No worker outlives its master: each notices the other's end by their socket pair, and one
//     that has not come to Run yet is sent SIGTERM (PR_SET_PDEATHSIG). Whichever of them ends, even
//     by kill -9, what the worker has started is killed with it, by its process group. What leaves
//     the group is not; nor is it if master and worker are killed in the same moment.
//   - Two masters cannot listen at one address.
//
// # Parts of a process
//
// Run starts the program again for each worker, with its arguments and environment, so that what
// main does before Run is done by all. Sockets come to a worker by the convention of
// systemd: LISTEN_FDS of them from descriptor 3.
//
// # Not for
//
// One process with GOMAXPROCS=n serves as well as n workers with GOMAXPROCS=1 if handlers only
// compute. Workers pay where processes share what they should not (a hot lock, the garbage
// collector's rate), where a crash must not end all, and for restarts and upgrades. They share no
// memory: caches, sessions and limits are each worker's own.
//
// An idle connection that a worker closes at its end may be one that its client is about to use:
// HTTP/1.1 has clients try again then (RFC 9112, 9.3.1), and those of package net/http do.
//
// What main does before Run is done by a rehearsal of an upgrade, too.
//
// Linux only. Elsewhere Run serves in one process: no workers, no restarts.
package prefork
