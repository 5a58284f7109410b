package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tallywheel/tallywheel/admission"
)

// A server works on 64 requests at a time; 256 more wait for 200 ms at most, health checks first.
func ExampleGate_Handler() {
	gate, err := admission.New(admission.Config{Limit: 64, Queue: 256, Wait: 200 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	_ = &http.Server{Handler: gate.Handler(mux, admission.HTTP{Urgency: func(r *http.Request) int {
		if r.URL.Path == "/healthz" {
			return admission.MostUrgent
		}
		return admission.Normal
	}})}
}

// A pool of 8 goroutines, up to 64 while 1,024 wait; beyond that who submits does the work.
func ExamplePool() {
	pool, err := admission.NewPool(admission.PoolConfig{Core: 8, Max: 64, Queue: 1024, Full: admission.CallerRuns})
	if err != nil {
		panic(err)
	}
	sums := make(chan int, 2)
	for _, n := range []int{3, 4} {
		if err := pool.Submit(context.Background(), func() { sums <- n * n }); err != nil {
			panic(err)
		}
	}
	if err := pool.Close(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(<-sums + <-sums)
	// Output: 25
}
