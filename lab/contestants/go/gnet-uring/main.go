//go:build fact

// Command gnet-uring builds only if gnet has the engine that the article on networks names.
package main

import (
	"github.com/panjf2000/gnet/v2"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

func main() {
	contestant.Main(func(t *contestant.Turn) error { return t.Answer(true, "gnet.IOUring is %v", gnet.IOUring) })
}
