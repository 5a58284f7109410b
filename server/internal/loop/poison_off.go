//go:build !race && !poison

package loop

// Poison says whether memory is overwritten when a loan of it ends: in builds with the race
// detector or the tag poison.
const Poison = false
