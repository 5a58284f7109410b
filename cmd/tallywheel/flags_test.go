package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A back-quoted word in what a flag does becomes the name of its value in the help.
func TestNoFlagNamesItsValueByAccident(t *testing.T) {
	seen := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				if seen++; strings.Contains(f.Usage, "`") {
					t.Errorf("%s --%s: %s", c.CommandPath(), f.Name, f.Usage)
				}
			})
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	if look(newRoot()); seen < 50 {
		t.Errorf("only %d flags were looked at", seen)
	}
}
