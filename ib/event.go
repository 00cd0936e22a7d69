package ib

// EventType is an asynchronous event. Values as ibv_event_type.
type EventType uint32

// Asynchronous events.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

// Name returns the event as C spells it: IBV_EVENT_QP_FATAL.
func (e EventType) Name() string {
	if uint64(e) < uint64(len(events)) {
		return "IBV_EVENT_" + events[e].name
	}
	return e.String()
}

// String returns the words of ibv_event_type_str: "last WQE reached".
func (e EventType) String() string {
	if uint64(e) < uint64(len(events)) {
		return events[e].words
	}
	return number("EventType", e)
}

var events = [...]struct{ name, words string }{
	EventCQErr:            {"CQ_ERR", "CQ error"},
	EventQPFatal:          {"QP_FATAL", "local work queue catastrophic error"},
	EventQPReqErr:         {"QP_REQ_ERR", "invalid request local work queue error"},
	EventQPAccessErr:      {"QP_ACCESS_ERR", "local access violation work queue error"},
	EventCommEst:          {"COMM_EST", "communication established"},
	EventSQDrained:        {"SQ_DRAINED", "send queue drained"},
	EventPathMig:          {"PATH_MIG", "path migrated"},
	EventPathMigErr:       {"PATH_MIG_ERR", "path migration request error"},
	EventDeviceFatal:      {"DEVICE_FATAL", "local catastrophic error"},
	EventPortActive:       {"PORT_ACTIVE", "port active"},
	EventPortErr:          {"PORT_ERR", "port error"},
	EventLIDChange:        {"LID_CHANGE", "LID change"},
	EventPKeyChange:       {"PKEY_CHANGE", "P_Key change"},
	EventSMChange:         {"SM_CHANGE", "SM change"},
	EventSRQErr:           {"SRQ_ERR", "SRQ catastrophic error"},
	EventSRQLimitReached:  {"SRQ_LIMIT_REACHED", "SRQ limit reached"},
	EventQPLastWQEReached: {"QP_LAST_WQE_REACHED", "last WQE reached"},
	EventClientReregister: {"CLIENT_REREGISTER", "client reregistration"},
	EventGIDChange:        {"GID_CHANGE", "GID table change"},
	EventWQFatal:          {"WQ_FATAL", "WQ fatal"},
}
