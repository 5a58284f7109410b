package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Who interrupts a replay is told so, and how far it was.
func TestInterruptedReplaySaysWhere(t *testing.T) {
	dir, log, stream := meterLog(t)
	begin := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i := range 2 { // an hour apart: the second is not played before the end
		at := begin.Add(time.Duration(i) * time.Hour).UnixNano()
		if _, err := log.Append(stream, at, []byte("value\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	play := func(ctx context.Context, to string) string {
		c := newRoot()
		c.SetArgs([]string{"replay", "--dir", dir, "--source", "meter", "--to", to})
		c.SetOut(io.Discard)
		err := c.ExecuteContext(ctx)
		if err == nil {
			return "it played all"
		}
		return err.Error()
	}

	ended, end := context.WithCancel(t.Context())
	end()
	if why := play(ended, "tcp-listen:0"); why != "interrupted while it waited for a receiver: nothing was played" {
		t.Errorf("without a receiver: %s", why)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // the receiver, which ends with the listener or the player
		defer stop()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, len("value\n")))
		stop()
		_, _ = io.Copy(io.Discard, conn)
	}()
	why := play(ctx, "tcp:"+l.Addr().String())
	if !strings.HasPrefix(why, "interrupted behind what was recorded at 2026-11-20 10:00:00") ||
		!strings.HasSuffix(why, ": the rest was not played") {
		t.Errorf("between two records: %s", why)
	}
}
