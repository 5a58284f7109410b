package testenv

// Rounds is how many rounds a test plays that goes by chance: all, but with the race detector few.
// There they take many times as long, and each round is much like the others to the detector. `make
// test` runs such tests once more without it: a new one belongs into CHANCE of the Makefile.
func Rounds(all, few int) int {
	if Race {
		return few
	}
	return all
}
