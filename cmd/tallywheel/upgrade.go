package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
)

func newUpgrade() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "upgrade -c FILE", Short: "have a recorder go on with the program that was put in place of its own",
		Long: "upgrade asks the keeper of FILE's recorder, which has `isolate: process`, to replace recorder and reader by processes of the\n" +
			"program that lies now where the keeper's was started from. Each new one prepares itself first: where it cannot, the old\n" +
			"one goes on; where it does not do its work within 2 s from then on, the old program is started again. Nothing is lost,\n" +
			"and the API answers late for a moment. At the end the keeper becomes the new program, too, and keeps its number. SIGUSR2 to the\n" +
			"keeper is the same without an answer.\n" +
			"Where log.dir is relative, run upgrade in the folder where the recorder was started.",
		Args: exactly(0, "no argument, and the configuration by -c FILE"),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: upgrade: of which recorder? use -c FILE", errUsage)
			}
			cfg, err := loading(c.Context(), file, 0, config.Load)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(cfg.Log.Dir)
			if err != nil {
				return fmt.Errorf("upgrade: %w", err)
			}
			err = isolate.Upgrade(c.Context(), doorOf(dir))
			switch {
			case errors.Is(err, os.ErrNotExist):
				return fmt.Errorf("upgrade: no recorder with `isolate: process` keeps the log %s: stop the one that runs, and start it again", dir)
			case err != nil:
				return fmt.Errorf("upgrade: %w", err)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "upgraded")
			return err
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file of the recorder")
	return c
}
