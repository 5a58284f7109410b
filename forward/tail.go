package forward

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/forward/batch"
)

// Tail reads what was forwarded to a stream of NATS JetStream, and proves that nothing is missing.
type Tail struct {
	URL    string
	Creds  string // file; "": none
	TLS    config.ClientTLS
	Stream string
	Source string // which sources, see archive.Selects; "": all

	Quarantine bool // bytes that were no frame, instead of frames; that nothing is missing is looked at of both

	All    bool      // begin with the oldest message; else with those that come
	Since  time.Time // begin with messages of this time or later; zero: not given
	Follow bool      // wait for more, and for the stream where it is not there yet; else end with what is there

	Each     func(batch.Message) error // gets each message; its error ends the reading
	OnBroken func(error)               // is told of gaps and doubles, *batch.GapError and *batch.DoubleError
	OnOther  func(subject string, err error)
	OnWait   func(error) // is told once that the stream is waited for, and why
}

// Redacted is the URL of a server, or several with commas between them, without what may be a
// secret: the password of a user, or a token.
func Redacted(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	if u, err := url.Parse(text); err == nil && u.User != nil && !strings.Contains(text, ",") {
		if _, has := u.User.Password(); has {
			return u.Redacted()
		}
	}
	scheme, _, ok := strings.Cut(text[:at], "://")
	if !ok {
		return "xxxxx" + text[at:]
	}
	return scheme + "://xxxxx" + text[at:]
}

// Run reads until the context ends, or the stream, or something fails.
func (t Tail) Run(ctx context.Context) error {
	options, err := optionsOf(config.Forward{Creds: t.Creds, TLS: t.TLS})
	if err != nil {
		return err
	}
	nc, err := nats.Connect(t.URL,
		append(options, nats.Name("tallywheel tail"), nats.Timeout(callPatience), nats.MaxReconnects(-1))...)
	if parse := (*url.Error)(nil); errors.As(err, &parse) { // its words have the URL, or a part of it
		err = errors.New("that is no URL of a server")
	}
	if err != nil {
		return fmt.Errorf("connect to %s: %w", Redacted(t.URL), natsFault(err))
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, waited, err := t.find(ctx, js)
	if stream == nil {
		return err
	}
	left := stream.CachedInfo().State.Msgs // of those that are there
	from := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	switch {
	case !t.Since.IsZero():
		from.DeliverPolicy, from.OptStartTime = jetstream.DeliverByStartTimePolicy, &t.Since
	case t.All, waited: // all of a stream that was not there has come since
		from.DeliverPolicy = jetstream.DeliverAllPolicy
	}
	if !t.Follow && (left == 0 || from.DeliverPolicy == jetstream.DeliverNewPolicy) {
		return nil
	}
	c, err := ask(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return stream.OrderedConsumer(ctx, from)
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return natsFault(err)
	}
	return t.read(ctx, c)
}

// streamLook is between two looks for a stream that is not there yet.
const streamLook = 200 * time.Millisecond

// find looks the stream up. Who follows waits for one that a recorder may be about to make, until
// the context ends; it is nil then.
func (t Tail) find(ctx context.Context, js jetstream.JetStream) (s jetstream.Stream, waited bool, err error) {
	for {
		s, err = streamOf(ctx, js, t.Stream)
		missing := errors.Is(err, jetstream.ErrStreamNotFound)
		switch {
		case err == nil:
			return s, waited, nil
		case ctx.Err() != nil:
			return nil, waited, nil
		case !missing && !waited: // later it may be the server that is started again
			return nil, waited, natsFault(err)
		case missing && !t.Follow:
			return nil, waited, fmt.Errorf("there is no stream %s at %s yet; --stream names another one", t.Stream,
				Redacted(t.URL))
		case !waited:
			t.OnWait(fmt.Errorf("there is no stream %s at %s yet: waiting for it; --stream names another one", t.Stream,
				Redacted(t.URL)))
			waited = true
		}
		select {
		case <-ctx.Done():
			return nil, waited, nil
		case <-time.After(streamLook):
		}
	}
}

// endLook is how long nothing comes before it is asked whether there is anything.
const endLook = time.Second

func (t Tail) read(ctx context.Context, c jetstream.Consumer) error {
	all, err := c.Messages()
	if err != nil {
		return natsFault(err)
	}
	defer context.AfterFunc(ctx, all.Stop)()
	defer all.Stop()
	var chain batch.Chain
	for {
		m, err := all.Next(jetstream.NextMaxWait(endLook))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
			errors.Is(err, jetstream.ErrNoMessages):
			if i, err := c.Info(ctx); !t.Follow && err == nil && i.NumPending == 0 {
				return nil
			}
			continue
		case err != nil:
			return natsFault(err)
		}
		if err := t.message(m, &chain); err != nil {
			return err
		}
		if at, err := m.Metadata(); err == nil && at.NumPending == 0 && !t.Follow {
			return nil
		}
	}
}

func (t Tail) message(m jetstream.Msg, chain *batch.Chain) error {
	if len(m.Headers()[batch.CheckpointHeader]) > 0 {
		return nil
	}
	b, err := batch.Parse(m.Headers(), m.Data())
	if err != nil {
		t.OnOther(m.Subject(), err)
		return nil
	}
	if t.Source != "" && !archive.Selects(t.Source, b.Source) {
		return nil
	}
	if err := chain.Next(b.Header); err != nil {
		t.OnBroken(err)
	}
	if b.Quarantine != t.Quarantine {
		return nil
	}
	return t.Each(b)
}
