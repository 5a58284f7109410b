package forward

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// mqttLink is a connection to a broker of MQTT 5. The protocol cannot say what a topic had last, so
// the mark alone says where to go on: what was on its way when a link broke, or since the mark was
// written last, is sent again. Each message names its records by user properties, and whoever
// receives it can drop what it has.
type mqttLink struct {
	d      *destination
	ctx    context.Context // of all that is under way
	cancel context.CancelFunc
	cm     *autopaho.ConnectionManager
	limit  int
	socket syscall.RawConn // below TLS; nil: not known
	ended  chan error
	ending sync.Once
	busy   sync.WaitGroup
}

// mqttLargest is the largest message where the broker sets no bound; the protocol has 256 MB.
const mqttLargest = 64 << 20

// dialMQTT connects to the broker of a destination.
func dialMQTT(ctx context.Context, d *destination) (link, error) {
	set, err := tlsOf(d.cfg.TLS)
	if err != nil {
		return nil, err
	}
	q := &mqttLink{d: d, limit: mqttLargest, ended: make(chan error, 1)}
	q.ctx, q.cancel = context.WithCancel(ctx)
	refused, up := make(chan error, len(d.cfg.URLs)), make(chan struct{})
	c := autopaho.ClientConfig{
		AttemptConnection: q.open,
		TlsCfg:            set, KeepAlive: 20, CleanStartOnInitialConnection: true, ConnectTimeout: callPatience,
		ConnectUsername: d.cfg.User, ConnectPassword: []byte(d.cfg.Password),
		ReconnectBackoff: func(int) time.Duration { return time.Second }, // a session has one connection
		OnConnectError: func(err error) {
			select {
			case refused <- err:
			default:
			}
		},
		OnConnectionDown: func() bool { q.end(errClosed); return false },
		OnConnectionUp: func(_ *autopaho.ConnectionManager, c *paho.Connack) {
			if p := c.Properties; p != nil && p.MaximumPacketSize != nil {
				q.limit = int(min(int64(*p.MaximumPacketSize), mqttLargest)) - headerRoom
			}
			close(up)
		},
		ClientConfig: paho.ClientConfig{
			ClientID: "tallywheel-" + d.cfg.Name + "-" + hex.EncodeToString(d.log[:4]), PacketTimeout: ackPatience,
			OnClientError: q.end,
			OnServerDisconnect: func(bye *paho.Disconnect) {
				q.end(mqttRefusal(bye.ReasonCode, "the broker has ended the connection"))
			},
		},
	}
	if os.Getenv("all_proxy") != "" {
		c.AttemptConnection = nil // the library speaks with the proxy
	}
	for _, text := range d.cfg.URLs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, down(reasonConfig, "urls: %v", err)
		}
		c.ServerUrls = append(c.ServerUrls, u)
	}
	if q.cm, err = autopaho.NewConnection(q.ctx, c); err != nil {
		q.cancel()
		return nil, down(reasonUnreachable, "%v", err)
	}
	for range d.cfg.URLs { // the library tries one behind the other
		select {
		case <-up:
			return q, nil
		case failed := <-refused:
			err = cmp.Or(err, failed)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	q.close()
	return nil, cmp.Or(wantsCertificate(err, &d.cfg), mqttFault(err))
}

// open makes a connection, on the library's goroutine, before anything is published on it.
func (q *mqttLink) open(ctx context.Context, c autopaho.ClientConfig, u *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	if u.Scheme == "mqtts" {
		dialer := tls.Dialer{Config: c.TlsCfg}
		conn, err := dialer.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return nil, err
		}
		q.socket = rawOf(conn.(*tls.Conn).NetConn())
		return packets.NewThreadSafeConn(conn), nil
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	q.socket = rawOf(conn)
	return conn, nil
}

// rawOf is the socket of a connection; nil: there is none.
func rawOf(conn net.Conn) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// quickAck tells the broker at once that its acknowledgement is here. A broker that leaves Nagle's
// algorithm on, as mosquitto does, holds the next one back until then, which may be that of the
// lane for which the walker waits: nothing goes out meanwhile, so the kernel would wait 40 ms.
func (q *mqttLink) quickAck() {
	if q.socket != nil {
		_ = q.socket.Control(func(fd uintptr) { sys.QuickAck(int(fd)) })
	}
}

func (q *mqttLink) end(err error) {
	q.ending.Do(func() { q.ended <- mqttFault(err) })
}

func (q *mqttLink) bytes() int           { return q.limit }
func (q *mqttLink) broken() <-chan error { return q.ended }

// close implements link.
func (q *mqttLink) close() {
	q.ending.Do(func() {})
	bye, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = q.cm.Disconnect(bye)
	q.cancel()
	<-q.cm.Done()
	q.busy.Wait()
}

// resume implements link: the mark alone knows.
func (q *mqttLink) resume(_ context.Context, l *lane) error {
	last := max(q.d.mark.Sources[l.String()].Last, l.acked)
	through := q.d.mark.Through
	if last == 0 {
		through = q.d.begin()
	}
	l.resumeAt(last, false, through)
	return nil
}

// send implements link.
func (q *mqttLink) send(l *lane, m *message) error {
	q.publish(&paho.Publish{
		QoS: 1, Topic: l.subject, Payload: m.body,
		Properties: &paho.PublishProperties{User: userProperties(m)},
	}, m)
	return nil
}

// publish puts a message on its way.
func (q *mqttLink) publish(p *paho.Publish, m *message) {
	q.busy.Go(func() {
		answer, err := q.cm.Publish(q.ctx, p)
		q.quickAck()
		if answer != nil && answer.ReasonCode >= 0x80 {
			err = mqttRefusal(answer.ReasonCode, "the broker refuses a message")
		} else if err != nil {
			err = mqttFault(err)
		}
		m.done <- result{err: err}
	})
}

// userProperties are the headers of a message, in order.
func userProperties(m *message) (all paho.UserProperties) {
	headers := m.Headers(m.bare)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		all.Add(name, headers[name][0])
	}
	return all
}

// Reason codes of MQTT 5, table 2-6.
const (
	mqttNotAuthorised   = 0x87
	mqttBadUser         = 0x86
	mqttPacketTooLarge  = 0x95
	mqttQuotaExceeded   = 0x97
	mqttPayloadRefused  = 0x99
	mqttTopicRefused    = 0x90
	mqttUnspecifiedFail = 0x80
)

// mqttRefusal is a reason code as a fault.
func mqttRefusal(code byte, what string) *fault {
	switch code {
	case mqttNotAuthorised, mqttBadUser:
		return down(reasonCredentials, "%s: user and password are refused, or may not publish there (0x%02x)", what,
			code)
	case mqttPacketTooLarge:
		return stopped(reasonTooLarge, "%s: it is larger than the broker takes; lower batch.bytes", what).ofLane()
	}
	words := map[byte]string{
		mqttQuotaExceeded: "a quota is exceeded", mqttPayloadRefused: "the payload is not valid",
		mqttTopicRefused:    "the topic is not valid",
		mqttUnspecifiedFail: "it does not say why",
	}
	return down(reasonRefused, "%s: %s (0x%02x)", what, cmp.Or(words[code], "for a reason of its own"), code)
}

// mqttFault is an error of the library as a fault.
func mqttFault(err error) error {
	var f *fault
	var refusal *autopaho.ConnackError
	switch {
	case errors.As(err, &f), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &refusal):
		return mqttRefusal(refusal.ReasonCode, "the broker refuses the connection")
	case errors.Is(err, context.DeadlineExceeded):
		return down(reasonNoAnswer, "the broker does not answer (%v)", err)
	}
	if isTLS(err) {
		return down(reasonTLS,
			"%v: see to tls.ca, by which this machine takes the broker's certificate, and to tls.cert, by which the broker takes ours", err)
	}
	return down(reasonUnreachable, "%v", err)
}
