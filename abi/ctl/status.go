package ctl

// Operations on the daemon as a whole. None of them needs an open device.
const (
	// OpStatus lists the devices with their state.
	OpStatus Op = 48
	// OpDeviceCounters asks for the counters of a device. QueryCountersReply answers it.
	OpDeviceCounters Op = 49
	// OpSubscribe asks to be woken when there are events; a socket comes with the reply, which has something to read then.
	// The daemon's own user and root alone may.
	OpSubscribe Op = 50
	// OpEvents lists events.
	OpEvents Op = 51
)

// ProfileSize is the bytes of a profile's name, zero-padded.
const ProfileSize = 16

// Status asks for devices from First on.
type Status struct {
	First    uint32
	Reserved uint32
}

// DeviceStatus is a device at one moment.
type DeviceStatus struct {
	Name            [NameSize]byte
	Profile         [ProfileSize]byte
	Netdev          [16]byte
	NetdevIfindex   uint32
	LinkMTU         uint32
	PortState       uint32
	ActiveMTU       uint32 // ib.MTU
	GIDs            uint32 // filled entries
	MaxQP           uint32
	Contexts        uint64
	PDs             uint64
	QPs             uint64
	CQs             uint64
	SRQs            uint64
	MRs             uint64
	MWs             uint64
	MappedBytes     uint64
	SentPackets     uint64
	SentBytes       uint64 // UDP payload
	ReceivedPackets uint64
	ReceivedBytes   uint64
}

// StatusReply has one page of devices.
type StatusReply struct {
	Count    uint32 // of all devices
	N        uint32 // of those here
	PID      uint32 // of the daemon
	Sessions uint32 // of applications, with an open device or without
	Started  uint64 // nanoseconds since 1970
	Now      uint64
	Devices  [16]DeviceStatus
}

// DeviceCounters asks for the counters of a device from First on; 1 is the daemon's first device.
type DeviceCounters struct {
	Device uint32
	First  uint32
}

// SubscribeReply says where the events begin: the last one that there has been has the number Last.
type SubscribeReply struct {
	Last uint64
}

// Kinds of events.
const (
	EventAsync         = 1 // an asynchronous event, Event says which: of one context, or if Context is 0 of the port
	EventContextOpened = 2
	EventContextClosed = 3
	EventMTU           = 4 // Value is the interface's MTU
	EventDraining      = 5 // the daemon is going down
)

// Event is something that happened in the daemon.
type Event struct {
	Number  uint64 // counts all events, from 1
	Time    uint64 // nanoseconds since 1970
	Context uint64 // counts the contexts of the device, from 1; 0 if it concerns none
	Value   uint64
	Device  uint32 // 1 is the daemon's first; 0 if it concerns none
	Kind    uint32
	Event   uint32 // ib.EventType
	Handle  uint32 // of the object, in its context
	UID     uint32
	PID     uint32
}

// Events asks for one page of the events after a number.
type Events struct {
	After uint64
}

// EventsReply is one page, in order. Lost counts those after the number asked for that the daemon keeps no more.
type EventsReply struct {
	N        uint32
	Reserved uint32
	Lost     uint64
	Events   [64]Event
}
