package forward

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// callPatience is that of one question. Only tests change it.
var callPatience = 10 * time.Second

// askAgain is how long a question has no answer before it is asked once more.
const askAgain = time.Second

// ask asks JetStream a question that may be asked twice, until there is an answer, for
// callPatience. In a cluster only a leader answers. While the others take one for it that is no
// more, and until they have elected the next, nobody answers, not even later: only who asks again
// is heard. An answer to an earlier try is as good, so a slow server has all the time there is.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	type answer struct {
		has T
		err error
	}
	answers := make(chan answer)
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		go func() {
			has, err := question(ctx)
			select {
			case answers <- answer{has, err}:
			case <-ctx.Done():
			}
		}()
		select {
		case a := <-answers:
			return a.has, a.err
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		case <-again.C:
		}
	}
}

// streamOf asks for a stream.
func streamOf(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	return ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, name) })
}

// infoOf asks what a stream is now.
func infoOf(ctx context.Context, s jetstream.Stream) (*jetstream.StreamInfo, error) {
	return ask(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.Info(ctx) })
}
