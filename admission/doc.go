// Package admission decides how much work a server takes on at a time, and what happens to the
// rest: it waits in a bounded queue, the urgent first, or it is refused at once, so that the caller
// can try elsewhere, tell its client, or do the work itself.
//
//	gate, err := admission.New(admission.Config{Limit: 64, Queue: 256, Wait: 200 * time.Millisecond})
//	…
//	place, err := gate.Enter(ctx, admission.Normal)
//	if err != nil { // ErrFull, ErrLate, ErrClosed, or the error of ctx
//		return err
//	}
//	defer place.Done()
//
// [Gate.Handler] puts a gate before an http.Handler. A [Pool] is a gate with goroutines of its own,
// which run what is submitted.
//
// # Which limit
//
// Work that computes gains nothing from more in flight than there are CPUs; work that waits for
// others does, up to what those others bear. Where nobody knows the number, [Adaptive] finds it: it
// compares the latency now with the latency when nothing queues, and lowers the limit as they part.
//
// # Bounds
//
// A gate holds no more than Limit + Queue callers; who comes then is refused without waiting.
// Nobody waits longer than Config.Wait. Urgency is not fairness: while urgent work fills the gate,
// the rest waits, and is late or displaced.
package admission
