package sys

// Presence says whether bytes of a file can be read without waiting.
type Presence uint8

// The presences.
const (
	Unknown Presence = iota // nobody can tell
	Absent                  // they have to be waited for
	Counted                 // the page cache has them; the file system may wait for something else
	Prompt                  // … and a read that must not wait was answered
)
