package forward

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// natsLink is a connection to JetStream. Messages are published with the sequence of the message
// that they must follow, and acknowledged to an inbox of the link's own.
type natsLink struct {
	d       *destination
	nc      *nats.Conn
	stream  jetstream.Stream
	info    *jetstream.StreamInfo
	limit   int
	inbox   string
	ended   chan error // has the first error that ended it
	ending  sync.Once
	mu      sync.Mutex
	next    uint64              // number of the next message
	waiting map[uint64]*message // sent and not acknowledged, by number
	unwatch context.CancelFunc  // ends watch; nil: nothing is watched
}

// Bounds of a connection.
const (
	headerRoom = 2 << 10 // for the headers of a message
	pingEach   = 10 * time.Second
)

// dialer connects as long as its context goes on, and closes the connection with it: the library
// would wait for a server that says nothing.
type dialer struct{ ctx context.Context }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, callPatience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &bound{c, context.AfterFunc(d.ctx, func() { _ = c.Close() })}, nil
}

// bound is a connection that ends with a context.
type bound struct {
	net.Conn
	free func() bool
}

// Close implements net.Conn.
func (b *bound) Close() error {
	b.free()
	return b.Conn.Close()
}

// dialNATS connects to the servers of a destination.
func dialNATS(ctx context.Context, d *destination) (link, error) {
	options, err := optionsOf(d.cfg)
	if err != nil {
		return nil, err
	}
	return connectNATS(ctx, d, options...)
}

func optionsOf(c config.Forward) (all []nats.Option, err error) {
	if c.Creds != "" {
		if _, err := sys.ReadOrdinary(c.Creds, 1<<20); err != nil {
			return nil, down(reasonConfig, "creds: %v", err)
		}
		all = append(all, nats.UserCredentials(c.Creds))
	}
	if c.User != "" {
		all = append(all, nats.UserInfo(c.User, c.Password))
	}
	set, err := tlsOf(c.TLS)
	if set != nil {
		all = append(all, nats.Secure(set))
	}
	return all, err
}

// tlsOf is what the files of a client say; nil: there are none.
func tlsOf(c config.ClientTLS) (*tls.Config, error) {
	if c == (config.ClientTLS{}) {
		return nil, nil
	}
	set := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := sys.ReadOrdinary(c.CA, 1<<20)
		if err != nil {
			return nil, down(reasonConfig, "tls.ca: %v", err)
		}
		if set.RootCAs = x509.NewCertPool(); !set.RootCAs.AppendCertsFromPEM(pem) {
			return nil, down(reasonConfig, "tls.ca: %s has no certificate", c.CA)
		}
	}
	if c.Cert != "" {
		pair, _, err := config.TLS{Cert: c.Cert, Key: c.Key}.Load()
		if err != nil {
			return nil, down(reasonConfig, "tls: %v", err)
		}
		set.Certificates = []tls.Certificate{pair}
	}
	return set, nil
}

// connectNATS makes the link.
func connectNATS(ctx context.Context, d *destination, more ...nats.Option) (link, error) {
	n := &natsLink{d: d, ended: make(chan error, 1), waiting: map[uint64]*message{}}
	var err error
	n.nc, err = nats.Connect(strings.Join(d.cfg.URLs, ","), append([]nats.Option{
		nats.Name("tallywheel " + d.cfg.Name), nats.SetCustomDialer(dialer{ctx}), nats.NoReconnect(),
		nats.Timeout(callPatience), nats.PingInterval(pingEach), nats.MaxPingsOutstanding(2),
		// a message goes out on the library's goroutine while the next one fills
		nats.WriteBufferSize(max(nats.DefaultWriteBufSize, int(d.cfg.Batch.Bytes)+headerRoom)),
		nats.ClosedHandler(func(c *nats.Conn) { n.end(natsFault(cmp.Or(c.LastError(), errClosed))) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) || errors.Is(err, nats.ErrPermissionViolation) {
				n.end(natsFault(err))
			}
		}),
	}, more...)...)
	if err != nil {
		return nil, cmp.Or(wantsCertificate(err, &d.cfg), natsFault(err))
	}
	n.inbox = nats.NewInbox()
	if _, err = n.nc.Subscribe(n.inbox+".*", n.acknowledged); err == nil {
		err = n.open(ctx)
	}
	if err != nil {
		n.close()
		return nil, natsFault(err)
	}
	if n.info.Cluster != nil {
		ctx, n.unwatch = context.WithCancel(ctx)
		go n.watch(ctx, leadOf(n.info.Cluster))
	}
	n.limit = int(n.nc.MaxPayload()) - headerRoom
	if most := n.info.Config.MaxMsgSize; most > 0 {
		n.limit = min(n.limit, int(most)-headerRoom)
	}
	return n, nil
}

func (n *natsLink) end(err error) {
	n.ending.Do(func() { n.ended <- err })
}

func (n *natsLink) bytes() int           { return n.limit }
func (n *natsLink) broken() <-chan error { return n.ended }

func (n *natsLink) close() {
	if n.unwatch != nil {
		n.unwatch()
	}
	n.nc.Close()
}

// send implements link.
func (n *natsLink) send(l *lane, m *message) error {
	number := n.waitFor(m)
	headers := m.Headers(m.bare)
	headers[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(l.at, 10)}
	headers[jetstream.ExpectedStreamHeader] = []string{n.d.cfg.Stream}
	err := n.nc.PublishMsg(&nats.Msg{
		Subject: l.subject, Reply: n.inbox + "." + strconv.FormatUint(number, 10),
		Header: headers, Data: m.body,
	})
	if err != nil {
		return natsFault(err)
	}
	return nil
}

// waitFor gives a message a number, by which its answer is known.
func (n *natsLink) waitFor(m *message) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	n.waiting[n.next] = m
	return n.next
}

// acknowledged has the answer to a message.
func (n *natsLink) acknowledged(answer *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(answer.Subject, n.inbox+"."), 10, 64)
	if err != nil {
		return
	}
	n.mu.Lock()
	m := n.waiting[number]
	delete(n.waiting, number)
	n.mu.Unlock()
	if m == nil {
		return
	}
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
	}
	switch {
	case len(answer.Data) == 0 && answer.Header.Get("Status") == "503":
		err = nats.ErrNoResponders
	case json.Unmarshal(answer.Data, &ack) != nil || ack.Error == nil && ack.Seq == 0:
		err = fmt.Errorf("an acknowledgement that cannot be read: %.100q", answer.Data)
	case ack.Error != nil:
		err = ack.Error
	}
	if err != nil {
		err = natsFault(err)
	}
	m.done <- result{ack.Seq, err}
}

// Errors of the server by their numbers, which its list gives.
const (
	errMessageTooLarge  jetstream.ErrorCode = 10054
	errWrongSequence    jetstream.ErrorCode = 10071
	errWrongSequence2   jetstream.ErrorCode = 10164
	errStreamSealed     jetstream.ErrorCode = 10109
	errStreamMismatch   jetstream.ErrorCode = 10060
	errNoJetStream      jetstream.ErrorCode = 10076
	errNoJetStreamOfOne jetstream.ErrorCode = 10039
)

// natsFault is an error of the library or of the server as a fault.
func natsFault(err error) error {
	var f *fault
	var api *jetstream.APIError
	switch {
	case errors.As(err, &f), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &api):
		return apiFault(api)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return down(reasonNoResponders,
			"no stream takes the messages: it is gone, or JetStream is off, or has no leader")
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthorization),
		errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrPermissionViolation),
		errors.Is(err, nats.ErrNkeysNotSupported):
		return down(reasonCredentials,
			"the server refuses the credentials, or they have expired: renew creds, or user and password (%v)", err)
	case errors.Is(err, nats.ErrSlowConsumer):
		return down(reasonSlowConsumer, "acknowledgements came faster than they were read (%v)", err)
	case errors.Is(err, nats.ErrMaxPayload):
		return stopped(reasonTooLarge,
			"a message is larger than the server takes: raise its max_payload, or lower batch.bytes").ofLane()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return down(reasonNoAnswer, "the server does not answer (%v)", err)
	}
	if isTLS(err) {
		return down(reasonTLS,
			"%v: see to tls.ca, by which this machine takes the server's certificate, and to tls.cert, by which the server takes ours", err)
	}
	return down(reasonUnreachable, "%v", err)
}

// wantsCertificate is the fault of a connection by TLS, without a certificate of ours, that the
// other side ended before it said anything: as one does that wants a certificate. It says so by an
// alert, which is lost where something of ours is on its way then. nil: it is another fault.
func wantsCertificate(err error, to *config.Forward) error {
	isCut := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	bySecure := func(text string) bool {
		scheme, _, _ := strings.Cut(text, "://")
		return slices.Contains([]string{"tls", "mqtts", "ssl", "wss"}, scheme)
	}
	if !isCut || to.TLS.Cert != "" || !slices.ContainsFunc(to.URLs, bySecure) {
		return nil
	}
	return down(reasonTLS,
		"the other side ended the connection before it said anything, as one does that wants a certificate: see to tls.cert (%v)", err)
}

// isTLS reports whether certificates are what is wrong.
func isTLS(err error) bool {
	var verify *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &verify) || errors.As(err, &header) || errors.As(err, &alert) ||
		errors.Is(err, nats.ErrSecureConnRequired) ||
		// the other side's alert, of a type that crypto/tls keeps for itself
		strings.Contains(err.Error(), "remote error: tls: ")
}

func apiFault(api *jetstream.APIError) *fault {
	switch api.ErrorCode {
	case errWrongSequence, errWrongSequence2:
		return down(reasonSequence, "the subject has another last message than the one before: it is looked at again")
	case errMessageTooLarge:
		return stopped(reasonTooLarge,
			"a message is larger than the stream takes: raise its max_msg_size, or lower batch.bytes").ofLane()
	case errStreamSealed:
		return stopped(reasonSealed, "the stream is sealed and takes nothing more: name another one by stream")
	case errStreamMismatch:
		return down(reasonNoResponders, "another stream takes the subject")
	case errNoJetStream, errNoJetStreamOfOne:
		return down(reasonNoResponders, "JetStream is off there: %s", api.Description)
	}
	return down(reasonRefused, "the server refuses it: %s (%d)", api.Description, api.ErrorCode)
}

// open finds the stream, or makes it, and looks whether it is the one of before.
func (n *natsLink) open(ctx context.Context) error {
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	d := n.d
	n.stream, err = streamOf(ctx, js, d.cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if d.mark.Created != 0 {
			f := stopped(reasonDeleted,
				"stream %s is gone, with all that it had acknowledged: bring it back, or set reset: resend, which makes it anew and sends what the log has",
				d.cfg.Stream)
			if d.cfg.Reset != "resend" {
				return f
			}
			d.beginAnew(f)
		}
		n.stream, err = ask(ctx, func(ctx context.Context) (jetstream.Stream, error) {
			return js.CreateStream(ctx, wanted(d.cfg))
		})
	}
	if err != nil {
		return err
	}
	if n.info, err = infoOf(ctx, n.stream); err != nil {
		return err
	}
	if err := n.judge(ctx, js); err != nil {
		return err
	}
	d.mark.Created = created(n.info)
	return nil
}

// judge says what is wrong with the stream, and widens it where it is narrower than it should be.
func (n *natsLink) judge(ctx context.Context, js jetstream.JetStream) (err error) {
	d, has := n.d, n.info.Config
	switch {
	case has.Sealed:
		return stopped(reasonSealed, "stream %s is sealed and takes nothing more: name another one by stream", has.Name)
	case has.Retention != jetstream.LimitsPolicy:
		return stopped(reasonRetention,
			"stream %s removes messages once they are read, so nobody can tell what it has had: want retention limits",
			has.Name)
	}
	if was := d.mark.Created; was != 0 && was != created(n.info) {
		f := stopped(reasonNew,
			"stream %s was made anew at %s, without all that it had acknowledged: set reset: resend, which sends what the log has",
			has.Name, created(n.info))
		if d.cfg.Reset != "resend" {
			return f
		}
		d.beginAnew(f)
	}
	if next, differs := widened(has, wanted(d.cfg)); differs {
		n.stream, err = ask(ctx, func(ctx context.Context) (jetstream.Stream, error) {
			return js.UpdateStream(ctx, next)
		})
		if err == nil {
			n.info, err = infoOf(ctx, n.stream)
		}
	}
	return err
}

// wanted is the stream that a configuration asks for.
func wanted(c config.Forward) jetstream.StreamConfig {
	want := jetstream.StreamConfig{
		Name: c.Stream, Description: "frames recorded by Tallywheel", Subjects: subjectsOf(c.Subject, c.Quarantine),
		Replicas: c.Replicas,
		MaxAge:   c.MaxAge, MaxBytes: int64(c.MaxBytes),
	}
	if want.MaxBytes == 0 {
		want.MaxBytes = -1
	}
	return want
}

// widened is a stream with all that is wanted, and no limit lower than before. Whoever made it
// wider, or without limits, has done so on purpose.
func widened(has, want jetstream.StreamConfig) (next jetstream.StreamConfig, differs bool) {
	next = has
	for _, subject := range want.Subjects {
		if !slices.Contains(next.Subjects, subject) {
			next.Subjects, differs = append(slices.Clone(next.Subjects), subject), true
		}
	}
	if want.Replicas > has.Replicas {
		next.Replicas, differs = want.Replicas, true
	}
	if has.MaxAge > 0 && (want.MaxAge == 0 || want.MaxAge > has.MaxAge) {
		next.MaxAge, differs = want.MaxAge, true
	}
	if has.MaxBytes > 0 && (want.MaxBytes <= 0 || want.MaxBytes > has.MaxBytes) {
		next.MaxBytes, differs = want.MaxBytes, true
	}
	return next, differs
}
