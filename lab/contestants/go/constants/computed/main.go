// Command computed makes its constants at its start.
package main

import "github.com/tallywheel/tallywheel/lab/contestants/go/constants"

func main() { constants.Computed() }
