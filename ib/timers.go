package ib

import "time"

// RNRTimer returns how long a requester waits at least after an RNR NAK with this timer code (IBA 9.7.5.2.8). Only the
// low five bits of code count; code 0 is the longest wait, 655.36 ms.
func RNRTimer(code uint8) time.Duration { return rnrTimers[code&31] * 10 * time.Microsecond }

// In units of 10 us.
var rnrTimers = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// AckTimeout returns the local ACK timeout of an exponent: 4.096 us * 2^exp, and 0, which means to wait for ever, for
// exponent 0 (IBA 9.7.6.1.3). Only the low five bits of exp count.
func AckTimeout(exp uint8) time.Duration {
	if exp &= 31; exp == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << exp
}
