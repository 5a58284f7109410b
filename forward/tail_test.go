package forward

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/forward/batch"
)

// tail is one of the world's stream that ends with what is there, and counts what it is given.
func (w *world) tail() (tail Tail, got map[string]int) {
	got = map[string]int{}
	return Tail{
		URL: w.url(), Stream: "TALLYWHEEL", All: true,
		Each: func(m batch.Message) error {
			for r := range m.Records() {
				got[string(r.Data)]++
			}
			return nil
		},
		OnBroken: func(err error) { w.t.Error(err) },
		OnOther:  func(subject string, err error) { w.t.Errorf("%s: %v", subject, err) },
		OnWait:   func(err error) { w.t.Error(err) },
	}, got
}

// Bytes that were no frame do not come among frames: who wants them asks for them.
func TestTailKeepsQuarantineApart(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Forward[0].Quarantine = true
	number, err := w.streams.Number(archive.Stream{Source: "a", Frame: "line", Quarantine: true})
	if err == nil {
		_, err = w.log.Append(number, time.Now().UnixNano(), archive.Quarantined(7, []byte("noise")))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.add(2, "a")
	w.forward()
	w.caughtUp()
	for quarantine, want := range map[bool]map[string]int{false: {"a frame 1": 1, "a frame 2": 1}, true: {"noise": 1}} {
		tail, got := w.tail()
		tail.Quarantine = quarantine
		if err := tail.Run(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("quarantine %v: %v, %v; want %v", quarantine, got, err, want)
		}
	}
}

// Who follows a stream that a recorder has not made yet is told once, and has all that comes then.
func TestTailWaitsForItsStream(t *testing.T) {
	w := newWorld(t, nil)
	w.add(3, "a")
	tail, _ := w.tail()
	if err := tail.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no stream TALLYWHEEL") ||
		!strings.Contains(err.Error(), " yet") {
		t.Errorf("who does not follow: %v", err)
	}
	for _, all := range []bool{true, false} {
		tail, got := w.tail()
		tail.Follow, tail.All, tail.Stream = true, all, map[bool]string{true: "FIRST", false: "SECOND"}[all]
		w.cfg.Forward[0].Stream, w.cfg.Forward[0].Subject = tail.Stream, tail.Stream+".{source}"
		w.cfg.Forward[0].Name = strings.ToLower(tail.Stream)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		told := 0
		tail.OnWait = func(error) { told++; w.forward() }
		each := tail.Each
		tail.Each = func(m batch.Message) error {
			if err := each(m); len(got) == 3 {
				cancel()
				return err
			}
			return nil
		}
		if err := tail.Run(ctx); err != nil || len(got) != 3 || told != 1 {
			t.Errorf("all %v: %v, %v, told %d times", all, got, err, told)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	tail, _ = w.tail()
	tail.Follow, tail.Stream, tail.OnWait = true, "NEVER", func(error) { cancel() }
	if err := tail.Run(ctx); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// No error of a tail, and nothing that it waits for, has the password, or the token, of its URL.
func TestTailKeepsSecrets(t *testing.T) {
	const secret = "s3cr,et"
	for text, want := range map[string]string{
		"nats://127.0.0.1:4222":                      "nats://127.0.0.1:4222",
		"nats://user:s3cret@h:4222":                  "nats://user:xxxxx@h:4222",
		"nats://s3cret@h":                            "nats://xxxxx@h",
		"nats://user:" + secret + "@h":               "nats://xxxxx@h",
		"nats://user:s3@cret%zz@h":                   "nats://xxxxx@h",
		"user:s3cret@h":                              "xxxxx@h",
		"nats://a:s3cret@h:4222,nats://b:s3cret@i:1": "nats://xxxxx@i:1",
		"tls://user:s3cret/@h":                       "tls://xxxxx@h",
	} {
		if got := Redacted(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
	w := newWorld(t, func(o *server.Options) { o.Username, o.Password = "user", "s3cret" })
	address := strings.TrimPrefix(w.url(), "nats://")
	closed := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for what, text := range map[string]string{
		"no stream": "nats://user:s3cret@" + address, "wrong password": "nats://user:s3cretive@" + address,
		"nobody": "nats://user:s3cret@" + closed, "no URL": "nats://user:s3cret%zz@" + closed,
		"a token": "nats://s3cret@" + address,
	} {
		tail, _ := w.tail()
		tail.URL = text
		if err := tail.Run(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	tail, _ := w.tail()
	tail.URL, tail.Follow = "nats://user:s3cret@"+address, true
	ctx, cancel := context.WithCancel(t.Context())
	tail.OnWait = func(err error) {
		if cancel(); strings.Contains(err.Error(), "s3cret") {
			t.Errorf("waiting: %v", err)
		}
	}
	if err := tail.Run(ctx); err != nil {
		t.Error(err)
	}
}
