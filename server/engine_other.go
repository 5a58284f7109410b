//go:build !linux

package server

import (
	"context"
	"fmt"
	"net"
	"time"
)

// engine has nothing here.
type engine struct{}

// Available says whether an engine can be had here, and why not.
func Available(e Engine) error {
	if e == Std {
		return nil
	}
	return fmt.Errorf("%s: %w: it needs Linux", e, ErrUnavailable)
}

func (s *Server) prepareEngine() {}
func (s *Server) listen(net.Listener, chan<- error) (stop func(), err error) {
	return nil, ErrUnavailable
}
func (s *Server) shutdownLoops(context.Context) error { return nil }
func (s *Server) closeLoops() error                   { return nil }
func (s *Server) endIdle(first, head time.Duration)   {}
func (s *Server) wait()                               {}
func (s *Server) addLoops(*Stats)                     {}
