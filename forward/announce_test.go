package forward

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/forward/batch"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/proof"
	"github.com/tallywheel/tallywheel/seglog"
)

// key is a new one for checkpoints.
func (w *world) key() (proof.Signer, proof.Verifier) {
	w.t.Helper()
	private, public, err := proof.NewKey("test.example/log")
	if err != nil {
		w.t.Fatal(err)
	}
	sign, err := proof.ParseSigner([]byte(private))
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := proof.ParseVerifier(public)
	if err != nil {
		w.t.Fatal(err)
	}
	return sign, key
}

// A destination that asks for checkpoints gets the newest, on a subject of their own, also after a
// new start; the frames beside them are as before, and who reads frames passes over them.
func TestCheckpointsArePublished(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Forward[0].Proof = true
	sign, key := w.key()
	w.log.Prove(seglog.Proving{Named: w.streams.Named, Sign: sign})
	w.forward()
	var last []byte
	js := w.js()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	published := func() []byte {
		s, err := js.Stream(ctx, "TALLYWHEEL")
		if err != nil {
			return nil
		}
		m, err := s.GetLastMsgForSubject(ctx, "tallywheel.proof")
		if err != nil {
			return nil
		}
		return m.Data
	}
	for round := range 2 {
		for w.log.Position().Bytes < int64(2+round)<<20 {
			w.add(2000, "a", "b")
		}
		testenv.Until(t, 2*time.Minute, "the newest checkpoint is published", func() bool {
			newest := w.log.Checkpoint()
			return newest != nil && slices.Equal(published(), newest) && !slices.Equal(newest, last)
		})
		last = published()
		if c, by, err := proof.OpenCheckpoint(last, key); err != nil || by == "" || c.Size < 1 {
			t.Errorf("round %d: %v, %v", round, c, err)
		}
		w.caughtUp()
		w.forward()
	}
	w.caughtUp()
	got, err := consumeFrames(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	if want := w.numbers["a"] + w.numbers["b"]; got != want {
		t.Errorf("%d frames, want %d", got, want)
	}
	n := 0
	tail := Tail{
		URL: w.url(), Stream: "TALLYWHEEL", All: true,
		Each:     func(m batch.Message) error { n += m.Count; return nil },
		OnBroken: func(err error) { t.Error(err) },
		OnOther:  func(subject string, err error) { t.Errorf("%s: %v", subject, err) },
	}
	if err := tail.Run(ctx); err != nil || n != got {
		t.Errorf("tail sees %d frames: %v", n, err)
	}
}

// consumeFrames counts the frames in the stream.
func consumeFrames(ctx context.Context, js jetstream.JetStream) (n int, err error) {
	s, err := js.Stream(ctx, "TALLYWHEEL")
	if err != nil {
		return 0, err
	}
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return 0, err
	}
	for range s.CachedInfo().State.Msgs {
		m, err := c.Next(jetstream.FetchMaxWait(20 * time.Second))
		if err != nil {
			return 0, err
		}
		if h, err := batch.ParseHeader(m.Headers()); err == nil {
			n += h.Count
		}
	}
	return n, nil
}
