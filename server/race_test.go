//go:build race

package server

const raceEnabled = true

const RaceEnabled = raceEnabled // for the tests from outside
