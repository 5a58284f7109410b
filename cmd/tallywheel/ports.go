package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/serial"
)

func newPorts() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ports", Short: "list the serial ports of this machine, without opening any",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			ports, err := serial.List()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{"ports": ports})
			}
			if len(ports) == 0 {
				fmt.Fprintln(os.Stderr, "no serial ports here; `tallywheel sim` makes virtual ones")
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PATH\tDRIVER\tIDENTITY\tPRODUCT")
			for _, p := range ports {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Path, p.Driver, p.Identity, p.Manufacturer+" "+p.Product)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "list as JSON")
	return c
}
