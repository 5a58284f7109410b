package loadgen_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tallywheel/tallywheel/loadgen"
)

// One request on each of four connections. Run sends for a time instead, at the rate that is set.
func Example() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer s.Close()

	load, err := loadgen.New(loadgen.Config{URL: s.URL + "/", Connections: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer load.Close()
	result, err := load.Once(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Requests, "answered,", result.Failed(), "failed")
	// Output: 4 answered, 0 failed
}
