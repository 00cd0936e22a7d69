package ctl

// OpQueryQPCounters asks for the counters of one queue pair. QueryCountersReply answers it.
const OpQueryQPCounters Op = 32

// QueryQPCounters asks for the counters of a queue pair from First on, by name.
type QueryQPCounters struct {
	QP    uint32 // handle
	First uint32
}
