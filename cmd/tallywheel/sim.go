package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// fleet is a number of virtual ports with a device behind each.
type fleet struct {
	ports   []*serialtest.Port
	devices []*serialtest.Device
}

const (
	maxPorts = 256
	maxRate  = 100_000_000 // of a port: no pseudo-terminal takes as much
)

// newFleet makes the ports as links named line-1 … in dir.
func newFleet(dir string, n int, condition serialtest.Condition, seed uint64, rate int) (*fleet, error) {
	if n < 1 || n > maxPorts {
		return nil, fmt.Errorf("%w: %d ports: want 1 to %d", errUsage, n, maxPorts)
	}
	if rate < 0 || rate > maxRate {
		return nil, fmt.Errorf("%w: --rate %d: want 0 to %d bytes a second", errUsage, rate, maxRate)
	}
	f := &fleet{}
	for i := range n {
		plan, err := serialtest.PlanFor(condition, uint32(i+1), seed)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		if rate > 0 {
			plan.Rate = rate
		}
		p, err := serialtest.NewPort(filepath.Join(dir, lineID(i)))
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.ports = append(f.ports, p)
		f.devices = append(f.devices, serialtest.NewDevice(p, plan))
	}
	return f, nil
}

func lineID(i int) string { return fmt.Sprintf("line-%d", i+1) }

// run lets the devices send until the context ends, and end cleanly.
func (f *fleet) run(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(f.devices))
	for i, d := range f.devices {
		all.Go(func() { errs[i] = d.Run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (f *fleet) close() error {
	var err error
	for _, p := range f.ports {
		err = errors.Join(err, p.Close())
	}
	return err
}

// late says how far the devices fell behind what they had to send; "" where that is little.
func (f *fleet) late() string {
	var made, behind uint64
	for _, d := range f.devices {
		made += d.Truth.Made * tally128.Size
		behind += d.Truth.Behind
	}
	if due := made + behind; behind > due/10 {
		return fmt.Sprintf("the devices sent %d %% of what they were to send: a port, its reader or this machine takes no more",
			100*made/due)
	}
	return ""
}

// truths is what each device did, by the name of its port.
func (f *fleet) truths() map[string]serialtest.Truth {
	t := map[string]serialtest.Truth{}
	for i, d := range f.devices {
		t[lineID(i)] = d.Truth
	}
	return t
}

func newSim() *cobra.Command {
	var dir string
	var condition serialtest.Condition
	var ports, rate int
	var length time.Duration
	var seed uint64
	var asJSON bool
	c := &cobra.Command{
		Use: "sim", Short: "make virtual serial ports with devices behind them that send, and misbehave on request",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			f, err := newFleet(dir, ports, condition, seed, rate)
			if err != nil {
				return err
			}
			for _, p := range f.ports {
				fmt.Fprintln(os.Stderr, "port", p.Link)
			}
			ctx := c.Context()
			if length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, length)
				defer cancel()
			}
			err = f.run(ctx)
			// a reader may be on it; without one there is nothing to wait for
			serialtest.DrainAll(f.ports, 2*time.Second)
			if late := f.late(); late != "" {
				fmt.Fprintln(os.Stderr, late)
			}
			if asJSON {
				err = errors.Join(err, json.NewEncoder(c.OutOrStdout()).Encode(f.truths()))
			} else {
				for name, t := range f.truths() {
					fmt.Fprintf(os.Stderr,
						"%s: %d frames made, %d unseen, %d corrupted, %d duplicated, %d reordered, %d outages\n",
						name, t.Made, t.Unseen, t.Corrupted, t.Duplicated, t.Reordered, t.Outages)
				}
			}
			return errors.Join(err, f.close())
		},
	}
	c.Flags().StringVar(&dir, "dir", "./ports", "folder for the links to the ports")
	c.Flags().IntVar(&ports, "ports", 1, "number of ports")
	c.Flags().IntVar(&rate, "rate", 0, "bytes a second and port; 0: that of the condition")
	addWord(c, &condition, "condition", serialtest.Steady, serialtest.Conditions(), "what the devices do")
	addSpan(c, &length, "for", 0, true, "how long to send; 0: until Ctrl-C")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of the faults")
	c.Flags().BoolVar(&asJSON, "json", false, "print what was done as JSON at the end")
	return c
}
