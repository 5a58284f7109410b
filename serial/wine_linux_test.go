package serial

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// TestUnderWine runs the tests for Windows under wine, whose COM9 is a pty that sends back what it
// gets. Wine is no Windows, and a pty no UART: how a driver behaves is not seen here.
func TestUnderWine(t *testing.T) {
	wine, err := exec.LookPath("wine")
	if err != nil || testing.Short() {
		t.Skip("SKIPPED: wine is missing, or -short is given; apt install wine wine64")
	}
	dir := t.TempDir()
	prefix := filepath.Join(dir, "wine")
	master, slave, err := sys.OpenPTY()
	if err != nil {
		t.Fatal(err)
	}
	line := os.NewFile(uintptr(master), "pty")
	held, err := sys.OpenTTY(slave) // or the pty would hang up when wine closes it
	if err != nil {
		t.Fatal(err)
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		b := make([]byte, 4096)
		for {
			n, err := line.Read(b)
			if err != nil {
				return
			}
			if _, err := line.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	defer func() {
		if err := errors.Join(line.Close(), sys.CloseFD(held)); err != nil {
			t.Error(err)
		}
		<-echoed
	}()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.CommandContext(ctx, name, args...)
		c.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "WINEPREFIX="+prefix,
			"WINEDEBUG=-all",
			"WINEDLLOVERRIDES=mscoree,mshtml=", "DISPLAY=", "TALLYWHEEL_COM=COM9")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		t.Logf("%s", out)
	}
	program := filepath.Join(dir, "serial.test.exe")
	run("go", "test", "-c", "-o", program, ".")
	run(wine, "wineboot", "--init")
	end := func() { // what wine has started for this folder; an error: it has ended
		c := exec.Command("wineserver", "-k")
		c.Env = append(os.Environ(), "WINEPREFIX="+prefix)
		_ = c.Run()
	}
	defer end()
	run(wine, "reg", "add", `HKLM\Software\Wine\Ports`, "/v", "COM9", "/d", slave, "/f")
	end() // its next start makes the port
	library := filepath.Join(prefix, "drive_c", "windows", "system32", "bcryptprimitives.dll")
	if _, err := os.Stat(library); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(library, prng(t), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(wine, program, "-test.v", "-test.timeout=2m")
}
