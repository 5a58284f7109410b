// Command checked checks at its start constants that were made before.
package main

import "github.com/tallywheel/tallywheel/lab/contestants/go/constants"

func main() { constants.Checked() }
