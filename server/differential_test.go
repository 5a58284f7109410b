package server

import (
	"bytes"
	"flag"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

var rounds = flag.Int("requests", testenv.Rounds(1500, 300), "generated requests of TestDifferential")

// foreign are targets that net/http parses and we leave to the handler.
var foreign = regexp.MustCompile(`(?m)^\S+ ([^/ ]\S*|\S*%\S*) HTTP/`)

// TestLeanDifferential does the same for lean handlers: inline on the loops, and on net/http.
func TestLeanDifferential(t *testing.T) {
	seed := testenv.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	_, oracle := start(t, Config{Lean: leanEcho, Engine: Std})
	addrs := map[string]string{}
	for _, w := range ways(t) {
		if w.Mode == Coroutine {
			_, addrs[string(w.Engine)+"-inline"] = start(t, Config{Lean: leanEcho, Engine: w.Engine, Mode: Inline})
			_, addrs[string(w.Engine)+"-coroutine"] = start(t,
				Config{Lean: leanEcho, Engine: w.Engine, Mode: Coroutine})
		}
	}
	cases := make([][]byte, 0, len(written)+*rounds)
	for _, w := range written {
		cases = append(cases, []byte(w))
	}
	for range *rounds {
		cases = append(cases, generate(rng))
	}
	final := func(all []answer) []answer { // a client that sends at once what it should wait for may get no 100
		return slices.DeleteFunc(all, func(a answer) bool { return a.Status < 200 })
	}
	failed := 0
	for _, raw := range cases {
		if foreign.Match(raw) || bytes.Contains(raw, []byte("http:")) {
			continue
		}
		want, err := ask(oracle, raw, len(raw), nil)
		if err != nil { // what net/http said cannot be taken apart: there is nothing to compare with
			t.Logf("%.600q: %v", raw, err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(addrs)) {
			got, err := ask(addrs[name], raw, rng.IntN(len(raw)+1), nil)
			if diff := same(raw, final(want), final(got)); err != nil || diff != "" {
				t.Errorf("%s: %.600q: %v %.1500s", name, raw, err, diff)
				failed++
			}
		}
		if failed > 10 {
			t.Fatal("and so on")
		}
	}
}

// TestDifferential sends the same bytes to net/http and to every engine and mode: what was written
// down, and what is made up.
func TestDifferential(t *testing.T) {
	seed := testenv.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	var cases [][]byte
	for _, w := range written {
		cases = append(cases, []byte(w))
	}
	for range *rounds {
		cases = append(cases, generate(rng))
	}
	addrs := map[string]string{}
	for _, way := range ways(t) {
		_, addrs[way.String()] = start(t, Config{Handler: answers(), Engine: way.Engine, Mode: way.Mode})
	}
	stricter, failed := 0, 0
	for _, raw := range cases {
		want, err := ask(addrs["std-goroutine"], raw, len(raw), nil)
		if err != nil {
			t.Logf("%.300q: left out, since net/http sends what is no answer: %v", raw, err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(addrs)) {
			if name == "std-goroutine" {
				continue
			}
			got, err := ask(addrs[name], raw, rng.IntN(len(raw)+1), nil)
			if err != nil {
				t.Errorf("%s: %.300q: %v", name, raw, err)
				failed++
				continue
			}
			if diff := same(raw, want, got); diff != "" {
				t.Errorf("%s: %.600q:\n%.2000s", name, raw, diff)
				failed++
			}
			if len(got) > 0 && len(want) > 0 && got[len(got)-1].Status != want[min(len(got), len(want))-1].Status {
				stricter++
			}
		}
		if failed > 10 {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d requests, %d times an answer was stricter", len(cases), stricter)
}

// TestSplits sends what was written down in two parts, cut at every byte.
func TestSplits(t *testing.T) {
	for _, way := range ways(t) {
		if way.Engine == Std {
			continue
		}
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			_, addr := start(t, Config{Handler: answers(), Engine: way.Engine, Mode: way.Mode})
			_, oracle := start(t, Config{Handler: answers(), Engine: Std})
			for _, raw := range written {
				if len(raw) > 400 || strings.HasPrefix(raw, "GET /size/1000") {
					continue
				}
				want, err := ask(oracle, []byte(raw), len(raw), nil)
				if err != nil {
					t.Fatal(err)
				}
				// All first parts are sent before the second ones, so that the server has seen each
				// by itself.
				var firsts, all sync.WaitGroup
				firsts.Add(len(raw) + 1)
				for split := range len(raw) + 1 {
					all.Go(func() {
						got, err := ask(addr, []byte(raw), split, func() { firsts.Done(); firsts.Wait() })
						if err != nil {
							t.Errorf("%q cut at %d: %v", raw, split, err)
						} else if diff := same([]byte(raw), want, got); diff != "" {
							t.Errorf("%q cut at %d: %s", raw, split, diff)
						}
					})
				}
				all.Wait()
				if t.Failed() {
					return
				}
			}
		})
	}
}
