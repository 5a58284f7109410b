package forward

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/proof"
	"github.com/tallywheel/tallywheel/seglog"
)

const mosquittoFrom = "apt install mosquitto mosquitto-clients"

// mosquitto starts a broker with some lines of configuration more.
func mosquitto(t *testing.T, port int, more string) *exec.Cmd {
	t.Helper()
	program := testenv.Program(t, "mosquitto", mosquittoFrom)
	dir := t.TempDir()
	file := filepath.Join(dir, "mosquitto.conf")
	text := fmt.Sprintf("listener %d 127.0.0.1\npersistence false\nmax_queued_messages 0\n%s\n", port, more)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // it may become another user
		t.Fatal(err)
	}
	c := exec.Command(program, "-c", file)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	testenv.Until(t, time.Minute, "the broker serves", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return c
}

// subscriber is mosquitto_sub, and the lines that it prints. It has subscribed when this returns.
func subscriber(t *testing.T, port int, version, topic string, args ...string) <-chan string {
	t.Helper()
	program := testenv.Program(t, "mosquitto_sub", mosquittoFrom)
	args = append([]string{"-h", "127.0.0.1", "-p", fmt.Sprint(port), "-V", version, "-q", "1", "-d", "-t", topic},
		args...)
	c := exec.Command(testenv.Program(t, "stdbuf", "apt install coreutils"),
		append([]string{"-oL", program}, args...)...)
	out, err := c.StdoutPipe()
	c.Stderr = c.Stdout
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := make(chan string, 10_000)
	subscribed := make(chan struct{})
	var once sync.Once
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			switch line := s.Text(); {
			case strings.HasPrefix(line, "Subscribed"):
				once.Do(func() { close(subscribed) }) // and again behind each break
			case strings.HasPrefix(line, "frame "):
				lines <- line
			}
		}
	}()
	select {
	case <-subscribed:
	case <-time.After(time.Minute):
		t.Fatal("nobody could subscribe")
	}
	return lines
}

// take reads lines until some are there.
func take(t *testing.T, lines <-chan string, n int) (all []string) {
	t.Helper()
	late := time.After(time.Minute)
	for len(all) < n {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the subscriber ended behind %d messages, want %d", len(all), n)
			}
			all = append(all, line)
		case <-late:
			t.Fatalf("%d messages, want %d", len(all), n)
		}
	}
	return all
}

// Frames come to a subscriber of mosquitto, each at least once, in order, with the names of their
// records; a broker that was away gets what came meanwhile.
func TestMosquitto(t *testing.T) {
	port := freePort(t)
	broker := mosquitto(t, port, "allow_anonymous true")
	w := newWorld(t, nil)
	w.cfg.Forward = []config.Forward{{
		To: "mqtt", URLs: []string{fmt.Sprintf("mqtt://127.0.0.1:%d", port)},
		Batch: config.Batch{Frames: 1, Delay: 20 * time.Millisecond},
	}}
	form := []string{"-F", "frame %p %P"}
	lines := subscriber(t, port, "mqttv5", "tallywheel/#", form...)
	w.add(50, "a.1")
	w.forward()
	for i, line := range take(t, lines, 50) {
		if !strings.HasPrefix(line, fmt.Sprintf("frame a.1 frame %d ", i+1)) ||
			!strings.Contains(line, fmt.Sprintf("Tallywheel-Last:%d", i+1)) {
			t.Fatalf("message %d is %q", i+1, line)
		}
	}
	w.caughtUp()
	_ = broker.Process.Kill()
	_ = broker.Wait()
	w.add(50, "a.1")
	w.fails("down", reasonUnreachable)
	mosquitto(t, port, "allow_anonymous true")
	lines = subscriber(t, port, "mqttv5", "tallywheel/a%2E1", form...)
	// What went out before the subscriber came back is not sent to it: the protocol is like that.
	w.caughtUp()
	w.add(10, "a.1")
	w.caughtUp()
	last := ""
	for !strings.Contains(last, "Tallywheel-Last:110") {
		last = take(t, lines, 1)[0]
	}
	if b := w.book(); b.Sources[0].Acknowledged != 110 {
		t.Errorf("%d frames acknowledged, want 110", b.Sources[0].Acknowledged)
	}
	w.forward() // another start, which goes on behind the mark
	w.add(1, "a.1")
	w.caughtUp()
	if b := w.book(); b.Sources[0].Acknowledged != 1 {
		t.Errorf("%d frames acknowledged by another start, want 1", b.Sources[0].Acknowledged)
	}
}

// Where nobody answers at the first address, the next one is tried.
func TestMosquittoAtTheSecondAddress(t *testing.T) {
	dead, port := freePort(t), freePort(t)
	broker := mosquitto(t, port, "allow_anonymous true")
	w := newWorld(t, nil)
	w.cfg.Forward = []config.Forward{{
		To: "mqtt", URLs: []string{fmt.Sprintf("mqtt://127.0.0.1:%d", dead), fmt.Sprintf("mqtt://127.0.0.1:%d", port)},
		Batch: config.Batch{Frames: 1, Delay: 20 * time.Millisecond},
	}}
	w.add(10, "a")
	w.forward()
	w.caughtUp()
	_ = broker.Process.Kill()
	_ = broker.Wait()
	w.fails("down", reasonUnreachable)
}

// A user whom the broker does not know.
func TestMosquittoRefuses(t *testing.T) {
	port := freePort(t)
	mosquitto(t, port, "allow_anonymous false")
	w := newWorld(t, nil)
	w.cfg.Forward = []config.Forward{{
		To: "mqtt", URLs: []string{fmt.Sprintf("mqtt://127.0.0.1:%d", port)}, User: "u",
		Password: "p",
	}}
	w.add(1, "a")
	w.forward()
	w.fails("down", reasonCredentials)
}

// Whoever speaks MQTT 3.1.1 subscribes at the server within.
func TestServerWithinSpeaksMQTT(t *testing.T) {
	testenv.Program(t, "mosquitto_sub", mosquittoFrom)
	port := freePort(t)
	w := newWorld(t, nil)
	w.cfg.Forward[0].URLs, w.cfg.Forward[0].Listen = nil, "off"
	w.cfg.Forward[0].MQTT = fmt.Sprintf("127.0.0.1:%d", port)
	w.cfg.Forward[0].Batch.Frames = 1
	w.forward()
	testenv.Until(t, time.Minute, "it is connected", func() bool { return w.book().State == "forwarding" })
	lines := subscriber(t, port, "mqttv311", "tallywheel/#", "-F", "frame %p")
	w.add(20, "a", "b.c")
	for _, line := range take(t, lines, 40) {
		if !strings.HasPrefix(line, "frame a frame ") && !strings.HasPrefix(line, "frame b.c frame ") {
			t.Errorf("a message is %q", line)
		}
	}
}

// A broker that wants certificates gets what it wants, by mqtts://, or it is said what is wrong.
func TestMosquittoByTLS(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	cert, key := a.issue("broker",
		&x509.Certificate{
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
	mine, mineKey := a.issue("recorder", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	port := freePort(t)
	mosquitto(t, port,
		fmt.Sprintf("allow_anonymous true\nuser root\ncafile %s\ncertfile %s\nkeyfile %s\nrequire_certificate true",
			a.file, cert, key))
	w := newWorld(t, nil)
	w.cfg.Forward = []config.Forward{{
		To: "mqtt", URLs: []string{fmt.Sprintf("mqtts://127.0.0.1:%d", port)},
		Batch: config.Batch{Frames: 1, Delay: 20 * time.Millisecond},
	}}
	w.add(20, "a")
	for _, bad := range []config.ClientTLS{
		{},
		{Cert: mine, Key: mineKey},
		{CA: stranger.file, Cert: mine, Key: mineKey},
		{CA: a.file},
	} {
		w.cfg.Forward[0].TLS = bad
		w.forward()
		w.fails("down", reasonTLS)
		if why := w.book().Why; !strings.Contains(why, "certificate") {
			t.Errorf("%+v: it says %q", bad, why)
		}
	}
	lines := subscriber(t, port, "mqttv5", "tallywheel/#", "-F", "frame %p", "--cafile", a.file, "--cert", mine,
		"--key", mineKey)
	w.cfg.Forward[0].TLS = config.ClientTLS{CA: a.file, Cert: mine, Key: mineKey}
	w.forward()
	w.caughtUp()
	for i, line := range take(t, lines, 20) {
		if want := fmt.Sprintf("frame a frame %d", i+1); line != want {
			t.Fatalf("message %d is %q, want %q", i+1, line, want)
		}
	}
}

// Whoever subscribes at a broker of MQTT 5 gets the newest checkpoint of the log, which the broker
// keeps, on a topic of its own.
func TestCheckpointsByMQTT(t *testing.T) {
	program := testenv.Program(t, "mosquitto_sub", mosquittoFrom)
	port := freePort(t)
	mosquitto(t, port, "allow_anonymous true")
	w := newWorld(t, nil)
	w.cfg.Forward = []config.Forward{{
		To: "mqtt", URLs: []string{fmt.Sprintf("mqtt://127.0.0.1:%d", port)}, Proof: true,
		Batch: config.Batch{Delay: 20 * time.Millisecond},
	}}
	sign, key := w.key()
	w.log.Prove(seglog.Proving{Named: w.streams.Named, Sign: sign})
	w.forward()
	for w.log.Position().Bytes < 2<<20 {
		w.add(2000, "a", "b")
	}
	w.caughtUp()
	var text []byte
	testenv.Until(t, 2*time.Minute, "the broker keeps the newest checkpoint", func() bool {
		out, err := exec.Command(program, "-h", "127.0.0.1", "-p", fmt.Sprint(port), "-V", "mqttv5", "-t",
			"tallywheel/proof", "-C", "1", "-W", "2", "-F", "%r %P\n%p").Output()
		if err != nil { // nothing was kept within two seconds
			return false
		}
		kept, rest, _ := bytes.Cut(out, []byte("\n"))
		text = bytes.TrimSuffix(rest, []byte("\n"))
		return string(kept) == "1 Tallywheel-Checkpoint:1" && bytes.Equal(text, w.log.Checkpoint())
	})
	if c, by, err := proof.OpenCheckpoint(text, key); err != nil || by == "" || c.Size < 1 {
		t.Errorf("%v, signed by %q: %v", c, by, err)
	}
}
