package e2e

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestAStopForwardsTheRest: a batch fills for a minute, and the recorder is stopped before. The
// metrics say what is behind; the stop brings it away, or says that it did not.
func TestAStopForwardsTheRest(t *testing.T) {
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startRecorder(t, t.TempDir(), fmt.Sprintf(`  - {id: meter, udp: {listen: %q}, frame: line}
forward: [{to: nats, name: plant, listen: "127.0.0.1:0", batch: {delay: 1m}}]
`, at))
	testenv.Until(t, time.Minute, "the destination takes frames",
		func() bool { return r.sheet(t).Forward[0].State == "forwarding" })
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const frames = 10
	for n := range frames {
		fmt.Fprintf(c, "value %d\n", n)
	}
	testenv.Until(t, time.Minute, "the frames are durable",
		func() bool { return r.sheet(t).Ports[0].Frames.Durable == frames })
	a, err := http.Get(r.url + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`tallywheel_forward_up{destination="plant"} 1`, `tallywheel_forward_lag_records{destination="plant"} 10`,
		`tallywheel_forward_gone_records_total{destination="plant"} 0`,
		`tallywheel_forward_stopped_sources{destination="plant"} 0`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("the metrics do not say %s", want)
		}
	}
	f := r.stop(t).Forward[0]
	told := strings.Contains(r.Err.String(), "not all of the log is forwarded")
	if f.LagRecords == 0 && (told || f.Through != frames || f.Sources[0].Acknowledged != frames) ||
		f.LagRecords > 0 && !told {
		t.Errorf("told of a rest: %v; the books say %+v", told, f)
	}
}

// TestNoServerWithoutForward: a recorder that does not forward has no port but those of its sources
// and of its page, and makes no folder for a server. One that does has one more.
func TestNoServerWithoutForward(t *testing.T) {
	for _, more := range []string{"", `forward: [{to: nats, listen: "127.0.0.1:0"}]` + "\n"} {
		dir, at := t.TempDir(), freePort(t)
		r := startRecorder(t, dir, fmt.Sprintf("  - {id: meter, udp: {listen: \"127.0.0.1:%d\"}, frame: line}\n", at)+more)
		page, err := url.Parse(r.url)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{page.Port(), strconv.Itoa(at)}
		if more != "" {
			testenv.Until(t, time.Minute, "the destination takes frames",
				func() bool { return r.sheet(t).Forward[0].State == "forwarding" })
			server, err := url.Parse(r.sheet(t).Forward[0].Address)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, server.Port())
		}
		slices.Sort(want)
		if got := portsOf(t, r.Cmd.Process.Pid); !slices.Equal(got, want) {
			t.Errorf("with %q it has ports %v, want %v", more, got, want)
		}
		_, err = os.Stat(filepath.Join(dir, "data", "nats"))
		if missing := errors.Is(err, fs.ErrNotExist); missing != (more == "") {
			t.Errorf("with %q, the folder of the server: %v", more, err)
		}
		r.stop(t)
	}
}

// portsOf lists the ports on which a process listens, by TCP and by UDP, each once.
func portsOf(t *testing.T, pid int) (all []string) {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("%d descriptors, %v", len(links), err)
	}
	var sockets []string
	for _, link := range links {
		to, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			sockets = append(sockets, strings.TrimSuffix(inode, "]"))
		}
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			// its number, here, there, the state (0A: it listens; 07: UDP that is not connected) …
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" && f[3] != "07" || !slices.Contains(sockets, f[9]) {
				continue
			}
			n, err := strconv.ParseUint(f[1][strings.LastIndexByte(f[1], ':')+1:], 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, strconv.FormatUint(n, 10))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mostBytes is how large the program may be on amd64, without symbols: it has a server of NATS.
const mostBytes = 45_000_000

// TestProgramIsNotTooLarge links it without symbols.
func TestProgramIsNotTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: linking takes seconds; run without -short")
	}
	out := filepath.Join(t.TempDir(), "tallywheel")
	c := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, "github.com/tallywheel/tallywheel/cmd/tallywheel")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	i, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d bytes", i.Size()); i.Size() > mostBytes {
		t.Errorf("the program has %d bytes, %d are allowed", i.Size(), mostBytes)
	}
}
