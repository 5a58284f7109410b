// Command compiled takes constants that were made before.
package main

import "github.com/tallywheel/tallywheel/lab/contestants/go/constants"

func main() { constants.Compiled() }
