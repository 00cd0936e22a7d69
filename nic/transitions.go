package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// The state table of IBA 10.3.1 and 11.2.5.2: which transitions there are, and which attributes each demands and allows
// for each type of queue pair. The state itself is not listed.

// qpTypes is a set of queue pair types.
type qpTypes uint16

const (
	typeRC qpTypes = 1 << iota
	typeUC
	typeUD
	typeRaw
	typeINI
	typeTGT
	typeGSI
	typeSMI

	typesDatagram  = typeUD | typeGSI | typeSMI
	typesConnected = typeRC | typeUC | typeINI | typeTGT
	typesReliable  = typeRC | typeINI | typeTGT
	typesAll       = typesDatagram | typesConnected | typeRaw
)

func typeBit(t ib.QPType) qpTypes {
	switch t {
	case ib.QPTypeRC:
		return typeRC
	case ib.QPTypeUC:
		return typeUC
	case ib.QPTypeUD:
		return typeUD
	case ib.QPTypeRawPacket:
		return typeRaw
	case ib.QPTypeXRCSend:
		return typeINI
	case ib.QPTypeXRCRecv:
		return typeTGT
	case ib.QPTypeGSI:
		return typeGSI
	case ib.QPTypeSMI:
		return typeSMI
	}
	return 0
}

type transition struct {
	from, to           ib.QPState
	types              qpTypes
	required, optional ib.QPAttrMask
}

// Attributes that several transitions take.
const (
	maskQKey    = ib.QPAttrQKey
	maskPKey    = ib.QPAttrPKeyIndex
	maskAccess  = ib.QPAttrAccessFlags
	maskCur     = ib.QPAttrCurState
	maskAlt     = ib.QPAttrAltPath
	maskMig     = ib.QPAttrPathMigState
	maskRNR     = ib.QPAttrMinRNRTimer
	maskPort    = ib.QPAttrPort
	maskDest    = ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN
	maskRetries = ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry
	maskRunning = maskCur | maskAlt | maskAccess | maskMig // what a connection may change while it runs
	maskDrained = maskAlt | maskAccess | maskMig | maskPKey | ib.QPAttrAV
)

var transitions = []transition{
	{ib.StateReset, ib.StateReset, typesAll, 0, 0},
	{ib.StateReset, ib.StateInit, typeUD, maskPKey | maskPort | maskQKey, 0},
	{ib.StateReset, ib.StateInit, typesConnected, maskPKey | maskPort | maskAccess, 0},
	{ib.StateReset, ib.StateInit, typeGSI | typeSMI, maskPKey | maskQKey, 0},
	{ib.StateReset, ib.StateInit, typeRaw, maskPort, 0},

	{ib.StateInit, ib.StateInit, typeUD, 0, maskPKey | maskPort | maskQKey},
	{ib.StateInit, ib.StateInit, typesConnected, 0, maskPKey | maskPort | maskAccess},
	{ib.StateInit, ib.StateInit, typeGSI | typeSMI, 0, maskPKey | maskQKey},
	{ib.StateInit, ib.StateInit, typeRaw, 0, 0},
	{ib.StateInit, ib.StateRTR, typesDatagram, 0, maskPKey | maskQKey},
	{ib.StateInit, ib.StateRTR, typeUC | typeINI, maskDest, maskAlt | maskAccess | maskPKey},
	{ib.StateInit, ib.StateRTR, typeRC | typeTGT, maskDest | ib.QPAttrMaxDestRDAtomic | maskRNR, maskAlt | maskAccess | maskPKey},
	{ib.StateInit, ib.StateRTR, typeRaw, 0, 0},

	{ib.StateRTR, ib.StateRTS, typesDatagram, ib.QPAttrSQPSN, maskCur | maskQKey},
	{ib.StateRTR, ib.StateRTS, typeUC, ib.QPAttrSQPSN, maskRunning},
	{ib.StateRTR, ib.StateRTS, typeRC, maskRetries | ib.QPAttrSQPSN | ib.QPAttrMaxRDAtomic, maskRunning | maskRNR},
	{ib.StateRTR, ib.StateRTS, typeINI, maskRetries | ib.QPAttrSQPSN | ib.QPAttrMaxRDAtomic, maskRunning},
	{ib.StateRTR, ib.StateRTS, typeTGT, ib.QPAttrTimeout | ib.QPAttrSQPSN, maskRunning | maskRNR},
	{ib.StateRTR, ib.StateRTS, typeRaw, 0, ib.QPAttrRateLimit},

	{ib.StateRTS, ib.StateRTS, typesDatagram, 0, maskCur | maskQKey},
	{ib.StateRTS, ib.StateRTS, typeUC | typeINI, 0, maskRunning},
	{ib.StateRTS, ib.StateRTS, typeRC | typeTGT, 0, maskRunning | maskRNR},
	{ib.StateRTS, ib.StateRTS, typeRaw, 0, ib.QPAttrRateLimit},
	{ib.StateRTS, ib.StateSQD, typesAll &^ typeRaw, 0, ib.QPAttrEnSQDAsyncNotify},
	{ib.StateRTS, ib.StateSQD, typeRaw, 0, 0},

	{ib.StateSQD, ib.StateSQD, typesDatagram, 0, maskPKey | maskQKey},
	{ib.StateSQD, ib.StateSQD, typeUC, 0, maskDrained},
	{ib.StateSQD, ib.StateSQD, typeRC, 0, maskDrained | maskPort | maskRetries | ib.QPAttrMaxRDAtomic |
		ib.QPAttrMaxDestRDAtomic | maskRNR},
	{ib.StateSQD, ib.StateSQD, typeINI, 0, maskDrained | maskPort | maskRetries | ib.QPAttrMaxRDAtomic},
	{ib.StateSQD, ib.StateSQD, typeTGT, 0, maskDrained | maskPort | ib.QPAttrTimeout | ib.QPAttrMaxDestRDAtomic | maskRNR},
	{ib.StateSQD, ib.StateSQD, typeRaw, 0, 0},
	{ib.StateSQD, ib.StateRTS, typeRaw, 0, 0},
	{ib.StateSQD, ib.StateRTS, typesDatagram, 0, maskCur | maskQKey},
	{ib.StateSQD, ib.StateRTS, typeUC | typeINI, 0, maskRunning},
	{ib.StateSQD, ib.StateRTS, typeRC | typeTGT, 0, maskRunning | maskRNR},

	{ib.StateSQE, ib.StateRTS, typesDatagram, 0, maskCur | maskQKey},
	{ib.StateSQE, ib.StateRTS, typeUC, 0, maskCur | maskAccess},
	{ib.StateSQE, ib.StateRTS, typesReliable | typeRaw, 0, 0},

	{ib.StateInit, ib.StateReset, typesAll, 0, 0},
	{ib.StateRTR, ib.StateReset, typesAll, 0, 0},
	{ib.StateRTS, ib.StateReset, typesAll, 0, 0},
	{ib.StateSQD, ib.StateReset, typesAll, 0, 0},
	{ib.StateSQE, ib.StateReset, typesAll, 0, 0},
	{ib.StateErr, ib.StateReset, typesAll, 0, 0},

	{ib.StateInit, ib.StateErr, typesAll, 0, 0},
	{ib.StateRTR, ib.StateErr, typesAll, 0, 0},
	{ib.StateRTS, ib.StateErr, typesAll, 0, 0},
	{ib.StateSQD, ib.StateErr, typesAll, 0, 0},
	{ib.StateSQE, ib.StateErr, typesAll, 0, 0},
	{ib.StateErr, ib.StateErr, typesAll, 0, 0},
}

// checkTransition judges a change of a queue pair of type t from cur to next that gives the attributes in mask. Every
// error wraps EINVAL.
func checkTransition(t ib.QPType, cur, next ib.QPState, mask ib.QPAttrMask) error {
	bit := typeBit(t)
	for i := range transitions {
		r := &transitions[i]
		if r.from != cur || r.to != next || r.types&bit == 0 {
			continue
		}
		if missing := r.required &^ mask; missing != 0 {
			return fmt.Errorf("%s from %s: attributes %s are missing: %w", next, cur, missing, syscall.EINVAL)
		}
		if extra := mask &^ (r.required | r.optional | ib.QPAttrState); extra != 0 {
			return fmt.Errorf("%s from %s: attributes %s cannot be given: %w", next, cur, extra, syscall.EINVAL)
		}
		return nil
	}
	return fmt.Errorf("%s from %s: invalid transition: %w", next, cur, syscall.EINVAL)
}
