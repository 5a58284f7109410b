package stranger

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// socat, which knows nothing of frames, brings bytes over each carrier: the log has them in order.
func TestSocat(t *testing.T) {
	socat := testenv.Program(t, "socat", "apt install socat")
	for _, carrier := range []string{"tcp-listen", "tcp-dial", "udp", "pty"} {
		t.Run(carrier, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, scenario{framing: "raw", frame: "{kind: raw, gap: 5ms}", carrier: carrier, seed: 1})
			in := filepath.Join(s.dir, "in")
			want := make([]byte, 60_000)
			_, _ = rand.NewChaCha8([32]byte{}).Read(want)
			if err := os.WriteFile(in, want, 0o600); err != nil {
				t.Fatal(err)
			}
			runs := 1
			switch carrier {
			case "tcp-listen": // again and again
				runs = 20
				s.start()
				for range runs {
					run(t, socat, "-u", "OPEN:"+in, "TCP:"+s.address)
				}
			case "udp": // so little that it has room in any socket
				s.start()
				run(t, socat, "-u", "-b", "1000", "OPEN:"+in, "UDP-SENDTO:"+s.address)
			case "tcp-dial":
				host, port, err := net.SplitHostPort(s.address)
				if err != nil {
					t.Fatal(err)
				}
				testenv.Start(t, socat, "-u", "OPEN:"+in, fmt.Sprintf("TCP-LISTEN:%s,bind=%s", port, host))
				s.start()
			case "pty": // a null modem
				near := filepath.Join(s.dir, "near")
				testenv.Start(t, socat, "PTY,rawer,link="+near, "PTY,rawer,link="+s.address)
				testenv.Until(t, startPatience, "there is a line", func() bool {
					_, err := os.Stat(s.address)
					return err == nil
				})
				s.start()
				testenv.Until(t, startPatience, "it is read", func() bool {
					var p portSheet
					return s.recorder.source(&p) && p.State == "open"
				})
				if err := os.WriteFile(near, want, 0); err != nil {
					t.Fatal(err)
				}
			}
			testenv.Until(t, startPatience, "all is read", func() bool {
				var p portSheet
				return s.recorder.source(&p) && p.Bytes.Read >= uint64(runs*len(want))
			})
			s.recorder.stop()
			got := s.command("log", "export", "--format", "raw", "--source", "x")
			if !bytes.Equal(got, bytes.Repeat(want, runs)) {
				t.Errorf("%d bytes are in the log, %d × %d were sent", len(got), runs, len(want))
			}
		})
	}
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}
