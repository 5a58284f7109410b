package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/forward"
	"github.com/tallywheel/tallywheel/forward/batch"
	"github.com/tallywheel/tallywheel/seglog"
)

// errBroken ends a tail that has found something missing, or twice.
var errBroken = errors.New("the stream does not have everything once: see above")

func newTail() *cobra.Command {
	t := &tailView{}
	c := &cobra.Command{
		Use:   "tail nats://HOST:PORT",
		Short: "print what was forwarded to NATS JetStream, and prove that it is complete",
		Long: "tail prints frames as they are forwarded, until Ctrl-C. With --all it begins with the oldest, with --end it ends with what\n" +
			"is there. Each message names the one before it of its source: what is missing between them, or came twice, is told.\n" +
			"A stream that is not there yet is waited for, unless --end is given.\n" +
			"Exit code: 0 if every message followed the one before it, 1 if not, or if the stream cannot be read, 2 for wrong use.",
		Args: exactly(1, "the server, as nats://127.0.0.1:4222"),
		RunE: t.run,
	}
	c.Flags().StringVar(&t.tail.Stream, "stream", "TALLYWHEEL", "name of the stream")
	c.Flags().StringVar(&t.tail.Source, "source", "", "only this source, or those of a pattern, as 'line-*'")
	c.Flags().StringVar(&t.tail.Creds, "creds", "", "file of credentials")
	c.Flags().StringVar(&t.tail.TLS.CA, "ca", "", "file of the certificates that the server's must come from")
	c.Flags().BoolVar(&t.tail.Quarantine, "quarantine", false, "bytes that were no frame, instead of frames")
	c.Flags().BoolVar(&t.tail.All, "all", false, "begin with the oldest message")
	c.Flags().BoolVar(&t.end, "end", false, "end with what is there")
	c.Flags().BoolVar(&t.view.asJSON, "json", false, "print JSON lines")
	t.view.window.flags(c, false)
	t.view.showFlags(c)
	return c
}

// tailView is what tail prints of a stream.
type tailView struct {
	tail   forward.Tail
	view   logView
	end    bool
	since  int64 // ns since 1970; 0: not given
	broken bool  // something was missing, or came twice
	print  func(archive.Record) error
}

func (t *tailView) run(c *cobra.Command, args []string) (err error) {
	if !strings.HasPrefix(args[0], "nats://") && !strings.HasPrefix(args[0], "tls://") {
		return fmt.Errorf("%w: %q: want nats://host:port or tls://host:port", errUsage, forward.Redacted(args[0]))
	}
	if t.since, _, err = t.view.window.moments(time.Now()); err != nil {
		return err
	}
	if t.since > 0 {
		t.tail.Since = time.Unix(0, t.since)
	}
	if t.end && !t.tail.All && t.since == 0 {
		return fmt.Errorf("%w: --end goes with --all or --since: else there is nothing to print", errUsage)
	}
	err = t.view.asked(c)
	if t.since > 0 && err == nil {
		err = idle(c, "is more than --since asks for", "all")
	}
	if err != nil {
		return err
	}
	t.print = t.view.line(c.OutOrStdout())
	t.tail.URL, t.tail.Follow, t.tail.Each = args[0], !t.end, t.each
	t.tail.OnOther = func(subject string, err error) {
		fmt.Fprintf(os.Stderr, "tallywheel: a message on %s is passed over: %v\n", subject, err)
	}
	t.tail.OnWait = func(err error) { fmt.Fprintln(os.Stderr, "tallywheel:", err) }
	t.tail.OnBroken = func(err error) {
		t.broken = true
		fmt.Fprintln(os.Stderr, "tallywheel:", err)
	}
	if err = t.tail.Run(c.Context()); err == nil && t.broken {
		err = errBroken
	}
	return err
}

// each prints a message.
func (t *tailView) each(m batch.Message) error {
	of := archive.Stream{Source: m.Source, Frame: m.Frame, Quarantine: m.Quarantine}
	for r := range m.Records() {
		if r.Time < t.since {
			continue
		}
		shown := archive.Describe(of, seglog.Record{Seq: r.Seq, Time: r.Time, Data: r.Data})
		// the offset of bytes that were no frame is not forwarded
		shown.Offset, shown.Data, shown.Len = nil, r.Data, len(r.Data)
		shown.Time = shown.Time.In(t.view.window.location())
		if err := t.print(shown); err != nil {
			return err
		}
	}
	return nil
}
