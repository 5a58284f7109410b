//go:build !race

package server

const raceEnabled = false

const RaceEnabled = raceEnabled // for the tests from outside
