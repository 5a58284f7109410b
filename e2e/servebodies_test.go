package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestServeEchoesWhole: what is sent comes back whole, also where the answer begins before the
// request has ended. It was cut there, of a body without a length unseen.
func TestServeEchoesWhole(t *testing.T) {
	for _, engine := range []string{"auto", "std"} {
		s := startServe(t, "echo", "--engine", engine)
		for _, size := range []int{0, 1000, 5000, 300_000, 3_000_000} {
			sent := bytes.Repeat([]byte("0123456789"), size/10)
			for _, body := range []io.Reader{bytes.NewReader(sent), io.MultiReader(bytes.NewReader(sent))} {
				r, err := http.NewRequest(http.MethodPost, s.url, body)
				if err != nil {
					t.Fatal(err)
				}
				if code, got := asked(t, r, nil); code != http.StatusOK || got != string(sent) {
					t.Errorf("%s: %d bytes of length %d: status %d, %d bytes back", engine, size, r.ContentLength,
						code, len(got))
				}
			}
		}
	}
}

// TestServeGivesNothingThatWaits: a FIFO is refused, and keeps no request.
func TestServeGivesNothingThatWaits(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, dir)
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}}
	for _, path := range []string{"/fifo", "/link"} {
		answer, err := client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	if answer, err := client.Get(s.url + "/"); err != nil {
		t.Error(err)
	} else if b, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(b), "fifo") {
		t.Errorf("the folder: %q, %v", b, err)
	}
	client.CloseIdleConnections()
	testenv.Until(t, time.Minute, "no request is in flight", func() bool {
		for _, w := range s.status(t) {
			if w.InFlight != 0 {
				return false
			}
		}
		return true
	})
}
