// Package control serves applications: it takes their requests from the control socket and turns them into objects of a
// device of package nic.
//
// A [Server] accepts connections and makes a [Session] for each. A session owns everything its application created, under
// handles that are small integers of its own, and gives it all back when the application closes the socket or dies: the
// end of the socket and a pidfd both tell. [Session.Handle] answers one request; package verbs/embedded calls it directly,
// so that a device in the application's own process judges requests exactly as the daemon does.
//
//	l, err := control.Listen("/run/softnicd/softnicd.sock")
//	srv, err := control.New(control.Config{Devices: devices, Log: log})
//	go srv.Serve(l)
//	...
//	srv.Shutdown(ctx)
//
// Whatever a request says is a claim. Sizes, handles, offsets and descriptors are checked before anything is made; what is
// refused gets an errno and a sentence that names the object, its descriptors are closed, and nothing stays behind.
//
// Two kinds of event leave a session: completion events on channels and asynchronous events. Both travel on socket pairs
// of which the daemon never waits for the other end: see mailbox.
package control
