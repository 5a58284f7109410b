package serial

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// echo is a port whose other end sends back what it gets: TestUnderWine has one, a line whose wires
// are bridged is another.
func echo(t *testing.T) string {
	name := os.Getenv("TALLYWHEEL_COM")
	if name == "" {
		t.Skip("SKIPPED: no port to try is named; TALLYWHEEL_COM=COM1 names one whose other end sends back what it gets")
	}
	return name
}

func open(t *testing.T, name string, cfg Config) *Port {
	t.Helper()
	p, err := Open(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestWhatWindowsRefuses(t *testing.T) {
	for what, cfg := range map[string]Config{
		"RS485": {RS485: &RS485{}}, "LowLatency": {LowLatency: true},
		"FIFOTrigger": {FIFOTrigger: 8},
	} {
		if _, err := Open("COM1", cfg); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"", `\\.\`, `C:\file`, `\\.\C:`, `\\.\pipe\name`, "../file"} {
		if _, err := Open(name, Config{}); err == nil || !strings.Contains(err.Error(), "no name of a port") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Open("COM250", Config{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "there ") {
		t.Errorf("a port that is not there: %v", err)
	}
}

func TestListHasThePort(t *testing.T) {
	name := echo(t)
	ports, err := List()
	if err != nil || !slices.ContainsFunc(ports, func(p Info) bool { return p.Path == name && p.Driver != "" }) {
		t.Errorf("%v, %v", ports, err)
	}
}

// TestReadsWhatIsSent sends more than a driver holds, byte values of all kinds, and gets all of it
// back.
func TestReadsWhatIsSent(t *testing.T) {
	name := echo(t)
	p := open(t, name, Config{})
	if p.Baud != 115200 || len(p.Accepted) > 0 {
		t.Errorf("%d baud, %v", p.Baud, p.Accepted)
	}
	if os.Getenv("WINEPREFIX") == "" { // wine lets any number in
		if _, err := Open(name, Config{}); !errors.Is(err, ErrInUse) {
			t.Errorf("opened twice: %v", err)
		}
	}
	sent := make([]byte, 40_000)
	for i := range sent {
		sent[i] = byte(i + i>>8)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Write(sent)
		wrote <- err
	}()
	if err := p.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(p, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, or others: %v", n, len(sent), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if c, err := p.Counters(); err != nil || c != (Counters{}) {
		t.Errorf("counters: %+v, %v", c, err)
	}
}

// TestWhatWaitsEnds: a deadline and Close end a read that nothing is sent to.
func TestWhatWaitsEnds(t *testing.T) {
	name := echo(t)
	for range 10 {
		p := open(t, name, Config{Baud: 9600})
		if err := p.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a deadline: %d, %v", n, err)
		}
		if err := p.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		reads, ended := make(chan bool), make(chan error)
		go func() {
			reads <- true
			_, err := p.Read(make([]byte, 10))
			ended <- err
		}()
		<-reads
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, os.ErrClosed) {
			t.Fatalf("closed: %v", err)
		}
	}
}
