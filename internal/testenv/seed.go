package testenv

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// SeedVar is set by `.ci/run`: there the random tests take this seed, so that what decides about a
// change does not change by itself. Everywhere else they look for something new.
const SeedVar = "TALLYWHEEL_SEED"

// Seed returns the seed of a random test, and logs it: SeedVar's, or a new one.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, ok := given(t)
	if !ok {
		seed = rand.Uint64()
	}
	t.Logf("seed %d; again: %s=%[1]d", seed, SeedVar)
	return seed
}

// Check is rapid.Check with the seed of SeedVar where it is set.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if seed, ok := given(t); ok {
		if err := flag.Set("rapid.seed", strconv.FormatUint(seed, 10)); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, property)
}

// CheckFew is Check, but with the race detector a fifth of the rounds: see Rounds.
func CheckFew(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	const usual = "100" // of rapid
	if checks := flag.Lookup("rapid.checks"); Race && checks.Value.String() == usual {
		if err := checks.Value.Set("20"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(usual) }()
	}
	Check(t, property)
}

func given(t testing.TB) (seed uint64, ok bool) {
	t.Helper()
	text, ok := os.LookupEnv(SeedVar)
	if !ok {
		return 0, false
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seed == 0 {
		t.Fatalf("%s=%q: want a number from 1 to 2^64-1", SeedVar, text)
	}
	return seed, true
}
