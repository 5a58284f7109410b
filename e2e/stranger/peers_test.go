package stranger

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// Senders beyond max_peers are refused: the metrics and the sheet say how many, and what they had
// sent.
func TestRefusedConnections(t *testing.T) {
	s := newStage(t, scenario{framing: "line", frame: "line", carrier: "tcp-all", seed: 1})
	s.cfg.peers = "all, max_peers: 1"
	s.start()
	dial := func(host byte) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}).Dial("tcp", s.address)
		if err == nil {
			_, err = fmt.Fprintf(c, "I am %d\n", host)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := dial(2)
	defer first.Close()
	var p portSheet
	testenv.Until(t, startPatience, "the first one is recorded",
		func() bool { return s.recorder.source(&p) && p.Frames.Stored == 1 })
	for n := range byte(2) {
		c := dial(3 + n)
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(startPatience))
		if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection beyond max_peers is not ended: %v", err)
		}
	}
	want := `tallywheel_refused_connections_total{cause="max_peers",source="x"} 2`
	var metrics string
	testenv.Until(t, startPatience, "the metrics tell", func() bool {
		resp, err := http.Get(s.recorder.url + "metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		metrics = string(b)
		return strings.Contains(metrics, want)
	})
	if unread := `tallywheel_unread_bytes_total{cause="refused",source="x"} 14`; !strings.Contains(metrics, unread) {
		t.Errorf("the metrics lack %s", unread)
	}
	s.recorder.stop()
	if text := string(s.command("log", "sheets")); !strings.Contains(text, "2 connections refused: max peers") {
		t.Errorf("the verdict does not tell: %s", text)
	}
}
