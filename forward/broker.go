package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallywheel/tallywheel/config"
)

// broker is the server within this process. It syncs before it acknowledges, and listens on this
// machine alone.
type broker struct {
	cfg config.Forward
	dir string
	log *slog.Logger

	mu      sync.Mutex
	server  *server.Server // nil: it does not run
	stopped bool
}

func newBroker(c config.Forward, dir string, log *slog.Logger) *broker {
	return &broker{cfg: c, dir: dir, log: log}
}

// startPatience is how long the server may take until it serves; what is in its files is read
// before.
const startPatience = time.Minute

// running is the server, which is started if need be.
func (b *broker) running(ctx context.Context) (*server.Server, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, context.Canceled
	}
	if b.server != nil && b.server.Running() {
		return b.server, nil
	}
	o, err := b.options()
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	said := &voice{log: b.log}
	s.SetLogger(said, false, false)
	go s.Start()
	for until := time.Now().Add(startPatience); !s.ReadyForConnections(100 * time.Millisecond); {
		if ctx.Err() == nil && time.Now().Before(until) && said.fatal() == "" {
			continue
		}
		why := cmp.Or(said.fatal(), "it does not begin to serve")
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("the NATS server within this process: %s", why)
	}
	b.server = s
	b.log.Info("a NATS server runs within this process", "listen", b.cfg.Listen, "mqtt", b.cfg.MQTT, "files", b.dir)
	return s, nil
}

func (b *broker) options() (*server.Options, error) {
	o := &server.Options{
		ServerName: "tallywheel", NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		JetStream: true, StoreDir: b.dir, SyncAlways: true,
		// what is made beside our stream, as for subscribers by MQTT
		JetStreamMaxStore: 2 * int64(b.cfg.MaxBytes), JetStreamMaxMemory: 64 << 20,
		MaxPayload: max(server.MAX_PAYLOAD_SIZE, int32(b.cfg.Batch.Bytes)+headerRoom),
	}
	var err error
	if o.DontListen = b.cfg.Listen == "off"; !o.DontListen {
		o.Host, o.Port, err = listenAt(b.cfg.Listen)
	}
	if err == nil && b.cfg.MQTT != "off" {
		o.MQTT.Host, o.MQTT.Port, err = listenAt(b.cfg.MQTT)
	}
	return o, err
}

// listenAt takes an address apart. For the server, 0 is its usual port, and -1 is any.
func listenAt(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = net.LookupPort("tcp", text)
	}
	if _, isNumber := strconv.Atoi(text); err == nil && isNumber == nil && port == 0 {
		port = -1
	}
	return host, port, err
}

// stop ends the server.
func (b *broker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
}

// dialWithin connects to the server within, by memory.
func dialWithin(b *broker) func(context.Context, *destination) (link, error) {
	return func(ctx context.Context, d *destination) (link, error) {
		s, err := b.running(ctx)
		if err != nil {
			return nil, down(reasonUnreachable, "%v", err)
		}
		d.mu.Lock()
		if d.book.Address = "within this process"; b.cfg.Listen != "off" {
			d.book.Address = s.ClientURL()
		}
		d.mu.Unlock()
		return connectNATS(ctx, d, nats.InProcessServer(s))
	}
}

// voice brings what the server says to the log of the recorder.
type voice struct {
	log *slog.Logger
	mu  sync.Mutex
	end string
}

// fatal is why the server has given up; "": it has not.
func (v *voice) fatal() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.end
}

// The methods of a logger of the server.
func (v *voice) Noticef(string, ...any) {}
func (v *voice) Debugf(string, ...any)  {}
func (v *voice) Tracef(string, ...any)  {}
func (v *voice) Warnf(format string, args ...any) {
	v.log.Warn("NATS server: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (v *voice) Errorf(format string, args ...any) {
	v.log.Error("NATS server: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Fatalf implements the logger: the server has given up.
func (v *voice) Fatalf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end = strings.TrimSpace(fmt.Sprintf(format, args...))
}

var errClosed = errors.New("the connection was closed")
