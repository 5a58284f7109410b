// Package sockets opens the network connections that are read: a device that is dialled, one that
// connects, and those that send datagrams. It hands out bare descriptors, for the runtime's poller,
// which knows every net.Conn, would wake for everything that arrives, too. Linux only.
package sockets
