// Package loop runs connections on a few threads. It knows bytes, deadlines and ends; what the
// bytes mean is the business of the [App] on a connection, and how the kernel is asked is that of a
// [Driver]: loop/epoll, loop/ring, and loop/looptest, which needs no kernel.
//
// # Who runs what
//
// A [Loop] owns its connections. One goroutine runs it, and everything of a [Conn] and of its App
// happens there, one call at a time; other goroutines leave a post. A turn of the loop:
//
//	send what connections have written → wait in the driver, which hands each event to the loop → do the posts → end what took too long
//
// Three kinds of App come with the package. [GoConn] is a net.Conn for goroutines: the loop
// receives for it and wakes it, and it sends by itself. [CoConn] is a net.Conn for a coroutine on
// the loop's own thread, which gives way where it would wait. An App of one's own, like the inline
// sessions of package h1, looks at the bytes where they arrived.
//
// # Lent memory
//
// What a driver has received is its own memory: a [Lent]. It is the connection's until the call
// returns and never later; the driver then uses it for somebody else's bytes. [Input] is the only
// way to keep some of it: what is left of a Lent is copied when it goes back. A build with the race
// detector overwrites each Lent when it goes back (see [Poison]), so that a slice which was kept
// shows as wrong bytes in a test.
//
// # Large input
//
// Of a body that is large a driver receives the beginning. From then on the connection is bulky:
// the App receives the rest by [Conn.Receive], on the loop, straight to where it belongs, in memory
// that was used a moment ago; the driver receives the first few KiB of what follows, and no more
// before the App has seen them. That is 1 MiB a turn at most, or one client would hold the loop. A
// connection on which only small requests come is as before after some of them.
//
// # The life of a connection
//
//	            input          peer ends its side  the app is done         all output sent       deadline      error
//	open        to the app     told to the app     flushing, or as if all  told to the app       told to app   told to the app; dead
//	                                               output were sent
//	flushing    thrown away    remembered          –                       lingering if asked    dead          dead
//	                                                                       for, else dead
//	lingering   thrown away    dead                –                       –                     dead          dead
//	dead        thrown away    –                   –                       –                     –             –
//
// Lingering: our side has ended sending, and what the peer still sends is thrown away until it ends
// its side. To close while it sends would reset the connection, and the reset takes away what the
// peer's kernel has not taken yet: all the answers that a slow reader has before it. So the
// deadline is half a second without a byte from the peer and with nothing left for it to take; or,
// in steps of that, 30 s in all, or more than 256 KiB thrown away. Dead: the driver closes the
// descriptor as soon as neither the kernel nor a goroutine uses it, and then the loop forgets the
// connection.
// [Conn] holds this table, and TestLifeOfAConnection checks it.
package loop
