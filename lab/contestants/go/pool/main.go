// Command pool is other people's pools of workers.
package main

import (
	"fmt"

	"github.com/alitto/pond/v2"
	"github.com/panjf2000/ants/v2"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	switch t.Name {
	case "ants":
		p, err := ants.NewPool(16)
		if err != nil {
			return err
		}
		return contestant.Pools(t, contestant.Pool{
			Submit: func(task func()) {
				if err := p.Submit(task); err != nil {
					panic(err) // it waits while it is full, and is not closed
				}
			},
			Close: p.Release,
		})
	case "pond":
		p := pond.NewPool(16, pond.WithQueueSize(64))
		return contestant.Pools(t, contestant.Pool{Submit: func(task func()) { p.Submit(task) }, Close: p.StopAndWait})
	}
	return fmt.Errorf("no contestant %q", t.Name)
}
