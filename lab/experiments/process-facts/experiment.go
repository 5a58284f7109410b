// Package processfacts asks whether what the article on processes says of Go and of processes is
// so.
package processfacts

import (
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

var (
	fewThreads = ask("goroutines: few threads", goroutinesOnThreads)
	threads    = ask("GOMAXPROCS: most threads", threadsBeyondProcs)
	statements = ask("go statements: processes", goStartsProcesses)
	forks      = ask("StartProcess: copies", startCopies)
	noShell    = ask("StartProcess: no shell", startWithoutShell)
	zombies    = ask("zombies and orphans", zombiesAndOrphans)
	sameFile   = ask("SCM_RIGHTS: the same file", passedFileIsSame)
	ends       = ask("exit: the article's functions", exitFunctions)
)

func ask(name string, try func(*contestant.Turn) (contestant.Finding, error)) *lab.Contestant {
	return lab.Ours(name, contestant.Asks(try))
}

func init() {
	lab.Register(&lab.Experiment{
		Name: "process-facts", Plane: lab.Processes,
		Question: "Is what the article says of goroutines, threads and processes so?",
		Method:   "Each contestant tries it, or reads the source of the Go that is installed. It answers once, by yes or no, and says what shows it.",
		Metrics:  []lab.Metric{lab.Answer}, Once: true,
		Contestants: []*lab.Contestant{fewThreads, threads, statements, forks, noShell, zombies, sameFile, ends},
		Advice:      lab.HowManySo("Of %d things that the article says of goroutines, threads and processes, and that were tried here, %d are so here."),
		Claims: []lab.Claim{
			claims.CheapGoroutine.Asked(fewThreads, "A goroutine that waits needs a stack of some KiB and no thread.", ""),
			claims.ProcsThreads.Asked(threads,
				"",
				"It is how many run Go code at a time; those that wait in the kernel come on top (package runtime)."),
			claims.GoProcesses.Refuted(statements, "A go statement starts a goroutine of the same process."),
			claims.StartForks.Asked(forks,
				"",
				"It is clone with CLONE_VFORK and CLONE_VM: the child borrows the memory until it has its own program, and nothing is copied."),
			claims.StartNoShell.Asked(noShell, "Whoever wants one starts it by name.", ""),
			claims.Zombies.Asked(zombies,
				"wait(2) and prctl(2): it is the nearest ancestor that has asked for orphans (PR_SET_CHILD_SUBREAPER), else init.", ""),
			claims.SameFile.Asked(sameFile, "unix(7): both share the place in the file and its flags.", ""),
			claims.ExitOrder.Refuted(ends,
				"The maps are the memory: both go first, and together (exit_mm), then the files (exit_files); the scheduler lets go last (Linux, kernel/exit.c, do_exit)."),
		},
	})
}
