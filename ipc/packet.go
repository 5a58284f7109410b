package ipc

import (
	"errors"
	"fmt"
)

// A packet on the socket, all numbers of one byte:
//
//	version 1 │ files n │ n × (length 1…255 │ name) │ data
//
// The descriptors themselves travel beside it (SCM_RIGHTS of unix(7)), in the order of the names.
const packetVersion = 1

// Bounds of a [Message].
const (
	MaxFiles = 253     // descriptors in a message: the kernel's own bound (SCM_MAX_FD)
	MaxName  = 255     // bytes of a file's name
	MaxData  = 1 << 20 // bytes of data, whatever [ConnConfig] says
)

// head is the most bytes that a packet has beside its data, for n files.
func head(n int) int { return 2 + n*(1+MaxName) }

// checkName holds names to what systemd takes for those of its descriptor store (FDNAME of
// sd_pid_notify_with_fds(3)), so that they can go there as they are.
func checkName(name string) error {
	if len(name) == 0 || len(name) > MaxName {
		return fmt.Errorf("ipc: a file's name has %d bytes: want 1 to %d", len(name), MaxName)
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == ':' {
			return fmt.Errorf("ipc: name %q of a file: want printable ASCII without colons", name)
		}
	}
	return nil
}

// appendPacket appends a packet to b.
func appendPacket(b []byte, names []string, data []byte) ([]byte, error) {
	if len(names) > MaxFiles {
		return nil, fmt.Errorf("ipc: %d files in a message: want at most %d", len(names), MaxFiles)
	}
	if len(data) > MaxData {
		return nil, fmt.Errorf("ipc: %d bytes in a message: want at most %d", len(data), MaxData)
	}
	b = append(b, packetVersion, byte(len(names)))
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
		b = append(append(b, byte(len(name))), name...)
	}
	return append(b, data...), nil
}

var errCut = errors.New("ipc: a packet ends within its names")

// parsePacket takes a packet apart; data lies in p.
func parsePacket(p []byte) (names []string, data []byte, err error) {
	if len(p) < 2 {
		return nil, nil, fmt.Errorf("ipc: a packet of %d bytes: the peer speaks another protocol", len(p))
	}
	if p[0] != packetVersion {
		return nil, nil, fmt.Errorf("ipc: a packet of version %d, this is %d: the peer is of another version", p[0],
			packetVersion)
	}
	n, p := int(p[1]), p[2:]
	if n > MaxFiles {
		return nil, nil, fmt.Errorf("ipc: a packet names %d files, more than %d", n, MaxFiles)
	}
	for range n {
		if len(p) < 1 || len(p) < 1+int(p[0]) {
			return nil, nil, errCut
		}
		name := string(p[1 : 1+int(p[0])])
		if err := checkName(name); err != nil {
			return nil, nil, err
		}
		names, p = append(names, name), p[1+len(name):]
	}
	return names, p, nil
}
