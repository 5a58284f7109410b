package h1

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
)

// TestEachField: every field of an answer's header comes once, in order, with its values, however
// many there are and whichever.
func TestEachField(t *testing.T) {
	names := []string{
		"Content-Type", "Content-Length", "Date", "Allow", "X-A", "Etag", "Vary", "Server", "Link", "Age", "Via",
	}
	for size := range len(names) + 1 {
		for from := range names {
			h := http.Header{}
			for i := range size {
				name := names[(from+i)%len(names)]
				h[name] = []string{name, "more"}[:i%3%2+1]
			}
			if size == 2 {
				h[names[from]] = nil // it has no value, and is a field all the same
			}
			var order []string
			got := http.Header{}
			(&response{header: h}).eachField(func(key string, values []string) {
				order = append(order, key)
				got[key] = values
			})
			if !slices.Equal(order, slices.Sorted(maps.Keys(h))) || !reflect.DeepEqual(got, h) {
				t.Errorf("of %v came %v, in this order: %v", h, got, order)
			}
		}
	}
}
