package ib

// StaticRate returns the bits per second of a static rate in an address vector, 0 for none or one that has no name.
// Codes as ibv_rate.
func StaticRate(code uint8) uint64 {
	if int(code) < len(staticRates) {
		return uint64(staticRates[code]) * 100e6
	}
	return 0
}

// In units of 100 Mbit/s.
var staticRates = [...]uint16{
	2: 25, 3: 100, 4: 300, 5: 50, 6: 200, 7: 400, 8: 600, 9: 800, 10: 1200, 11: 140, 12: 560, 13: 1120, 14: 1680,
	15: 250, 16: 1000, 17: 2000, 18: 3000, 19: 280, 20: 500, 21: 4000, 22: 6000, 23: 8000, 24: 12000,
}
