package control

import "github.com/softnic/softnicd/abi/ctl"

// operation is how one kind of request is answered.
type operation struct {
	name         string // begins the sentence of a refusal
	fewest, most int    // attachments
	device       bool   // needs an open device
	run          func(s *Session, op ctl.Op, body []byte, in *attachments) (any, []ctl.Attachment, error)
}

// operations are all requests there are.
var operations = map[ctl.Op]operation{
	ctl.OpListDevices:     {"list devices", 0, 0, false, plain((*Session).listDevices)},
	ctl.OpListCQs:         {"list cqs", 0, 0, false, plain((*Session).listCQs)},
	ctl.OpStatus:          {"status", 0, 0, false, plain((*Session).status)},
	ctl.OpDeviceCounters:  {"device counters", 0, 0, false, plain((*Session).deviceCounters)},
	ctl.OpSubscribe:       {"subscribe", 0, 0, false, with((*Session).subscribe)},
	ctl.OpEvents:          {"events", 0, 0, false, plain((*Session).events)},
	ctl.OpOpen:            {"open device", 1, 1, false, with((*Session).open)},
	ctl.OpQueryDevice:     {"query device", 0, 0, true, plain((*Session).queryDevice)},
	ctl.OpQueryPort:       {"query port", 0, 0, true, plain((*Session).queryPort)},
	ctl.OpQueryGID:        {"query gid", 0, 0, true, plain((*Session).queryGID)},
	ctl.OpQueryPKey:       {"query pkey", 0, 0, true, plain((*Session).queryPKey)},
	ctl.OpQueryCounters:   {"query counters", 0, 0, true, plain((*Session).queryCounters)},
	ctl.OpAddArena:        {"add arena", 1, 1, true, with((*Session).addArena)},
	ctl.OpRemoveArena:     {"remove arena", 0, 0, true, plain((*Session).removeArena)},
	ctl.OpAllocPD:         {"alloc pd", 0, 0, true, plain((*Session).allocPD)},
	ctl.OpDeallocPD:       {"dealloc pd", 0, 0, true, plain((*Session).deallocPD)},
	ctl.OpRegMR:           {"reg mr", 0, 2, true, with((*Session).regMR)},
	ctl.OpDeregMR:         {"dereg mr", 0, 0, true, plain((*Session).deregMR)},
	ctl.OpReregMR:         {"rereg mr", 0, 2, true, with((*Session).reregMR)},
	ctl.OpRegMRParts:      {"reg mr", 0, 2, true, with((*Session).regMRParts)},
	ctl.OpAllocMW:         {"alloc mw", 0, 0, true, plain((*Session).allocMW)},
	ctl.OpDeallocMW:       {"dealloc mw", 0, 0, true, plain((*Session).deallocMW)},
	ctl.OpCreateChannel:   {"create comp channel", 0, 0, true, with((*Session).createChannel)},
	ctl.OpDestroyChannel:  {"destroy comp channel", 0, 0, true, plain((*Session).destroyChannel)},
	ctl.OpCreateCQ:        {"create cq", 0, 0, true, plain((*Session).createCQ)},
	ctl.OpDestroyCQ:       {"destroy cq", 0, 0, true, plain((*Session).destroyCQ)},
	ctl.OpResizeCQ:        {"resize cq", 0, 0, true, plain((*Session).resizeCQ)},
	ctl.OpModifyCQ:        {"modify cq", 0, 0, true, plain((*Session).modifyCQ)},
	ctl.OpQueryQPCounters: {"query qp counters", 0, 0, true, plain((*Session).queryQPCounters)},
	ctl.OpCreateSRQ:       {"create srq", 0, 0, true, plain((*Session).createSRQ)},
	ctl.OpModifySRQ:       {"modify srq", 0, 0, true, plain((*Session).modifySRQ)},
	ctl.OpQuerySRQ:        {"query srq", 0, 0, true, plain((*Session).querySRQ)},
	ctl.OpDestroySRQ:      {"destroy srq", 0, 0, true, plain((*Session).destroySRQ)},
	ctl.OpCreateAH:        {"create ah", 0, 0, true, plain((*Session).createAH)},
	ctl.OpDestroyAH:       {"destroy ah", 0, 0, true, plain((*Session).destroyAH)},
	ctl.OpAttachMcast:     {"attach mcast", 0, 0, true, plain((*Session).attachMcast)},
	ctl.OpDetachMcast:     {"detach mcast", 0, 0, true, plain((*Session).detachMcast)},
	ctl.OpOpenXRCD:        {"open xrcd", 0, 1, true, with((*Session).openXRCD)},
	ctl.OpCloseXRCD:       {"close xrcd", 0, 0, true, plain((*Session).closeXRCD)},
	ctl.OpCreateXSRQ:      {"create srq", 0, 0, true, plain((*Session).createXSRQ)},
	ctl.OpCreateTarget:    {"create qp", 0, 0, true, plain((*Session).createTarget)},
	ctl.OpOpenTarget:      {"open qp", 0, 0, true, plain((*Session).openTarget)},
	ctl.OpCreateQP:        {"create qp", 0, 0, true, plain((*Session).createQP)},
	ctl.OpModifyQP:        {"modify qp", 0, 0, true, plain((*Session).modifyQP)},
	ctl.OpQueryQP:         {"query qp", 0, 0, true, plain((*Session).queryQP)},
	ctl.OpDestroyQP:       {"destroy qp", 0, 0, true, plain((*Session).destroyQP)},
}

// with decodes the request for an operation that has attachments, on the way in or out.
func with[T any](f func(*Session, *T, *attachments) (any, []ctl.Attachment, error)) func(*Session, ctl.Op, []byte, *attachments) (any, []ctl.Attachment, error) {
	return func(s *Session, op ctl.Op, body []byte, in *attachments) (any, []ctl.Attachment, error) {
		var request T
		if err := ctl.Decode(op, body, &request); err != nil {
			return nil, nil, err
		}
		return f(s, &request, in)
	}
}

// plain is the same for one that has none.
func plain[T any](f func(*Session, *T) (any, error)) func(*Session, ctl.Op, []byte, *attachments) (any, []ctl.Attachment, error) {
	return with(func(s *Session, request *T, _ *attachments) (any, []ctl.Attachment, error) {
		reply, err := f(s, request)
		return reply, nil, err
	})
}
