package forward

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// What is done to a stream while nobody forwards, and while somebody does, is named, and nothing is
// sent on top of it; with reset: resend, everything that the log has is there again.
func TestLosses(t *testing.T) {
	remake := func(ctx context.Context, t *testing.T, js jetstream.JetStream) {
		if err := js.DeleteStream(ctx, "TALLYWHEEL"); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(ctx,
			jetstream.StreamConfig{Name: "TALLYWHEEL", Subjects: []string{"tallywheel.*"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, reason string
		harm         func(context.Context, *testing.T, jetstream.JetStream)
	}{
		{"deleted", reasonDeleted, func(ctx context.Context, t *testing.T, js jetstream.JetStream) {
			if err := js.DeleteStream(ctx, "TALLYWHEEL"); err != nil {
				t.Fatal(err)
			}
		}},
		{"made anew", reasonNew, remake},
		{"purged", reasonPurged, func(ctx context.Context, t *testing.T, js jetstream.JetStream) {
			s, err := js.Stream(ctx, "TALLYWHEEL")
			if err == nil {
				err = s.Purge(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"purged subject", reasonPurged, func(ctx context.Context, t *testing.T, js jetstream.JetStream) {
			s, err := js.Stream(ctx, "TALLYWHEEL")
			if err == nil {
				err = s.Purge(ctx, jetstream.WithPurgeSubject("tallywheel.a"))
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %v", c.name, live), func(t *testing.T) {
				w := newWorld(t, nil)
				w.add(40, "a", "b")
				w.forward()
				w.caughtUp()
				if !live {
					w.fw.Stop()
				}
				c.harm(t.Context(), t, w.js())
				w.add(10, "a", "b")
				if !live {
					w.forward()
				}
				w.fails("stopped", c.reason)
				w.cfg.Forward[0].Reset = "resend"
				w.forward()
				w.caughtUp()
				same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
			})
		}
	}
}

// A stream that is sealed takes nothing more, and no setting helps.
func TestSealed(t *testing.T) {
	for _, live := range []bool{false, true} {
		w := newWorld(t, nil)
		w.add(10, "a")
		w.forward()
		w.caughtUp()
		if !live {
			w.fw.Stop()
		}
		s, err := w.js().Stream(t.Context(), "TALLYWHEEL")
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		c.Sealed = true
		if _, err := w.js().UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if !live {
			w.forward()
		}
		w.add(10, "a")
		w.fails("stopped", reasonSealed)
	}
}

// Somebody else's message on a subject stops that source alone. Once it is removed, or with reset:
// resend, the source goes on, and nothing of it is missing or there twice.
func TestSomebodyElsePublishes(t *testing.T) {
	for _, reset := range []string{"stop", "resend"} {
		w := newWorld(t, nil)
		w.cfg.Forward[0].Reset = reset
		w.add(10, "a", "b")
		w.forward()
		w.caughtUp()
		js := w.js()
		ack, err := js.Publish(t.Context(), "tallywheel.a", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.add(10, "a", "b")
		s, err := js.Stream(t.Context(), "TALLYWHEEL")
		if err != nil {
			t.Fatal(err)
		}
		if reset == "stop" {
			w.fails("stopped", reasonSequence)
			testenv.Until(t, time.Minute, "the other source goes on", func() bool {
				for _, s := range w.book().Sources {
					if s.ID == "b" {
						return s.Acknowledged == 20
					}
				}
				return false
			})
		} else {
			w.caughtUp()
		}
		if err := s.DeleteMsg(t.Context(), ack.Sequence); err != nil {
			t.Fatal(err)
		}
		w.forward()
		w.caughtUp()
		same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
	}
}

// A broker that was set back to older files gets again what it has lost, on the same subjects.
func TestSetBack(t *testing.T) {
	w := newWorld(t, nil)
	w.add(40, "a", "b")
	w.forward()
	w.caughtUp()
	w.fw.Stop()
	w.unserve()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(w.options.StoreDir)); err != nil {
		t.Fatal(err)
	}
	w.serve()
	w.forward()
	w.add(40, "a", "b")
	w.caughtUp()
	w.fw.Stop()
	w.unserve()
	w.options.StoreDir = old
	w.serve()
	w.forward()
	w.caughtUp()
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
	for _, s := range w.book().Sources {
		if s.Resent != 40 {
			t.Errorf("%s: %d sent again, want 40", s.ID, s.Resent)
		}
	}
}

// A log that was set back, or another one, does not go on where it never was.
func TestLogSetBack(t *testing.T) {
	w := newWorld(t, nil)
	w.add(40, "a")
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.add(40, "a")
	w.forward()
	w.caughtUp()
	w.fw.Stop()
	_ = w.log.Close()
	w.dir, w.cfg.Log.Dir = old, old
	w.open()
	w.forward()
	w.fails("stopped", reasonAhead)
	w.fw.Stop()
	_ = w.log.Close()
	w.dir = t.TempDir()
	w.cfg.Log.Dir = w.dir
	w.open()
	w.add(10, "a")
	w.forward()
	w.fails("stopped", reasonOtherLog)
}

// A frame that fits no message stops its source, and no other; a batch that does not fit is made
// smaller before.
func TestTooLarge(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.MaxPayload = 8 << 10 })
	w.cfg.Forward[0].Batch.Frames = 1000
	w.add(2000, "a")
	number, err := w.streams.Number(archive.Stream{Source: "big", Frame: "raw"})
	if err == nil {
		_, err = w.log.Append(number, 1, []byte(strings.Repeat("x", 9<<10)))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.add(10, "a", "big")
	w.forward()
	w.fails("stopped", reasonTooLarge)
	testenv.Until(t, time.Minute, "the other source arrives", func() bool {
		for _, s := range w.book().Sources {
			if s.ID == "a" {
				return s.Acknowledged == 2010
			}
		}
		return false
	})
	got, want := consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir)
	delete(want, "tallywheel.big")
	same(t, got, want)
}

// Without JetStream nobody takes a message.
func TestNoResponders(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.JetStream = false })
	w.add(1, "a")
	w.forward()
	w.fails("down", reasonNoResponders)
}

// Credentials that are refused, or have expired.
func TestCredentials(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	w.cfg.Forward[0].User, w.cfg.Forward[0].Password = "u", "wrong"
	w.add(1, "a")
	w.forward()
	w.fails("down", reasonCredentials)
	w.cfg.Forward[0].Password = "right"
	w.forward()
	w.caughtUp()
}

// A user whose credentials expire while frames go out is named, and renewed ones go on.
func TestExpiredCredentials(t *testing.T) {
	operator, account, user := pair(t, nkeys.CreateOperator), pair(t, nkeys.CreateAccount), pair(t, nkeys.CreateUser)
	system := pair(t, nkeys.CreateAccount)
	systemJWT, err := jwt.NewAccountClaims(public(t, system)).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	a := jwt.NewAccountClaims(public(t, account))
	a.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	accountJWT, err := a.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := errors.Join(resolver.Store(public(t, account), accountJWT),
		resolver.Store(public(t, system), systemJWT)); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *server.Options) {
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{public(t, operator)}, resolver, public(t, system)
	})
	creds := filepath.Join(t.TempDir(), "user.creds")
	issue := func(valid time.Duration) {
		u := jwt.NewUserClaims(public(t, user))
		u.Expires = time.Now().Add(valid).Unix()
		token, err := u.Encode(account)
		seed, _ := user.Seed()
		text, formErr := jwt.FormatUserConfig(token, seed)
		if err := errors.Join(err, formErr, os.WriteFile(creds, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	issue(3 * time.Second)
	w.cfg.Forward[0].Creds = creds
	w.add(10, "a")
	w.forward()
	w.fails("down", reasonCredentials)
	issue(time.Hour)
	w.add(10, "a")
	w.caughtUp()
}

func pair(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	k, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(t *testing.T, k nkeys.KeyPair) string {
	t.Helper()
	p, err := k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every error that a server or the library may give has a reason of its own.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nats.ErrSlowConsumer, reasonSlowConsumer},
		{nats.ErrAuthExpired, reasonCredentials},
		{nats.ErrNoResponders, reasonNoResponders},
		{nats.ErrNoServers, reasonUnreachable},
		{context.DeadlineExceeded, reasonNoAnswer},
		{&jetstream.APIError{ErrorCode: 10077, Description: "maximum bytes exceeded"}, reasonRefused},
	} {
		if f := faultOf(natsFault(fmt.Errorf("connect: %w", c.err))); f.reason != c.want || f.stopped {
			t.Errorf("%v is %q, want %q", c.err, f.reason, c.want)
		}
	}
}

// A link whose acknowledgements come faster than they are read ends, and says so: the library drops
// them then.
func TestSlowConsumer(t *testing.T) {
	w := newWorld(t, nil)
	w.add(1, "a")
	w.forward()
	w.caughtUp()
	w.fw.Stop()
	d := w.fw.all[0]
	to, err := d.dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	n := to.(*natsLink)
	defer n.close()
	n.mu.Lock() // nothing is read
	defer n.mu.Unlock()
	nc := connected(t, w.url())
	for range nats.DefaultSubPendingMsgsLimit + 2 {
		if err := nc.Publish(n.inbox+".1", nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-n.broken():
		if f := faultOf(err); f.reason != reasonSlowConsumer {
			t.Errorf("it is %q: %v", f.reason, f)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// Messages that the limits of the stream removed are not sent again: the mark says that they had
// arrived.
func TestAgedOut(t *testing.T) {
	for name, limit := range map[string]func(*config.Forward){
		"by age":   func(c *config.Forward) { c.MaxAge = 500 * time.Millisecond },
		"for room": func(c *config.Forward) { c.MaxBytes = 64 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			limit(&w.cfg.Forward[0])
			w.add(10, "a")
			w.forward()
			w.caughtUp()
			if name == "for room" {
				w.add(2000, "b")
				w.caughtUp()
			}
			w.fw.Stop()
			s, err := w.js().Stream(t.Context(), "TALLYWHEEL")
			if err != nil {
				t.Fatal(err)
			}
			testenv.Until(t, time.Minute, "the source has no message left", func() bool {
				_, err := s.GetLastMsgForSubject(t.Context(), "tallywheel.a")
				return errors.Is(err, jetstream.ErrMsgNotFound)
			})
			w.add(5, "a")
			w.forward()
			w.caughtUp()
			b := w.book()
			i := slices.IndexFunc(b.Sources, func(s ledger.ForwardSource) bool { return s.ID == "a" })
			if a := b.Sources[i]; a.Acknowledged != 5 || a.Resent != 0 || a.State != ledger.ForwardOn || b.Gone != 0 {
				t.Errorf("the books say %+v of the source, and %d are gone", a, b.Gone)
			}
		})
	}
}
