package server

import (
	"testing"
)

// FuzzDifferential holds what any bytes are answered by the loops against what net/http answers.
func FuzzDifferential(f *testing.F) {
	for _, w := range written {
		if len(w) < 500 {
			f.Add([]byte(w), uint16(len(w)/2))
		}
	}
	addrs := map[string]string{}
	for _, way := range ways(f) {
		_, addrs[way.String()] = start(f, Config{Handler: answers(), Engine: way.Engine, Mode: way.Mode})
	}
	oracle := addrs["std-goroutine"]
	delete(addrs, "std-goroutine")
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		if len(raw) > 8<<10 {
			return
		}
		want, err := ask(oracle, raw, len(raw), nil)
		if err != nil {
			return // net/http sends what is no answer
		}
		for name, addr := range addrs {
			got, err := ask(addr, raw, int(cut)%(len(raw)+1), nil)
			if diff := same(raw, want, got); err != nil || diff != "" {
				t.Errorf("%s: %q: %v %s", name, raw, err, diff)
			}
		}
	})
}
