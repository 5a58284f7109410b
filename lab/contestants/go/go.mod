// The peers that Tallywheel is measured against, apart from it so that its own list of dependencies stays short.
module github.com/tallywheel/tallywheel/lab/contestants/go

go 1.26

require (
	github.com/sigurn/crc16 v0.0.0-20211026045750-20ab5afb07e3 // indirect
	go.bug.st/serial v1.8.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
)
