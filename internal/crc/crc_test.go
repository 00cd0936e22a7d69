package crc

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"
)

func random(n int) []byte {
	b := make([]byte, n)
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// Every length that takes another way through the code, at every alignment in a vector, beside the standard library.
func TestUpdate(t *testing.T) {
	if !wide {
		t.Log("this processor does not multiply in wide vectors: the standard library is compared with itself")
	}
	b := random(9000)
	crc := uint32(0x12345678)
	check := func(p []byte) {
		t.Helper()
		got, want := Update(crc, p), crc32.Update(crc, crc32.IEEETable, p)
		if got != want {
			t.Fatalf("%d bytes: %#x, want %#x", len(p), got, want)
		}
		crc = got
	}
	for n := range 1100 {
		check(b[n%67:][:n])
	}
	for at := range 65 {
		for _, n := range []int{256, 1024, 1500, 2048, 4096, 4096 + 255, 8192} {
			check(b[at:][:n])
		}
	}
	for _, pattern := range []byte{0, 0xff} {
		for i := range b {
			b[i] = pattern
		}
		for _, crc = range []uint32{0, ^uint32(0)} {
			check(b[:4096])
		}
	}
}

func TestUpdateAllocatesNothing(t *testing.T) {
	b := random(4099)
	var crc uint32
	if n := testing.AllocsPerRun(100, func() { crc = Update(crc, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The constants of the assembly are what the polynomial makes them.
func TestConstants(t *testing.T) {
	text, err := os.ReadFile("crc_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]uint64)
	for _, m := range regexp.MustCompile(`(?m)^DATA (\w+<>\+0x\w+)\(SB\)/8, \$(0x\w+|0)`).FindAllStringSubmatch(string(text), -1) {
		if have[m[1]], err = strconv.ParseUint(m[2], 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	const poly = 1<<32 | 0x04c11db7
	// power returns x^n mod P, reflected and shifted.
	power := func(n int) uint64 {
		r := uint64(1)
		for range n {
			if r <<= 1; r>>32 != 0 {
				r ^= poly
			}
		}
		return uint64(bits.Reverse32(uint32(r))) << 1
	}
	quotient, rest := uint64(1)<<32, uint64(poly&(1<<32-1))<<32 // of x^64 by P, after the first bit
	for i := 31; i >= 0; i-- {
		if rest>>(i+32)&1 != 0 {
			quotient |= 1 << i
			rest ^= poly << i
		}
	}
	want := map[string]uint64{
		"last<>+0x00": power(64), "last<>+0x08": 0,
		"last<>+0x10": bits.Reverse64(quotient) >> 31, "last<>+0x18": bits.Reverse64(poly) >> 31,
		"last<>+0x20": 1<<32 - 1, "last<>+0x28": 0,
		"distance<>+0x70": 0, "distance<>+0x78": 0,
	}
	for i, d := range []int{2048, 1536, 1024, 512, 384, 256, 128} {
		want[fmt.Sprintf("distance<>+0x%02x", 16*i)] = power(d + 32)
		want[fmt.Sprintf("distance<>+0x%02x", 16*i+8)] = power(d - 32)
	}
	for name, v := range want {
		if got, ok := have[name]; !ok || got != v {
			t.Errorf("%s is %#x, want %#x", name, got, v)
		}
	}
	if len(have) != len(want) {
		t.Errorf("%d constants in the assembly, %d derived", len(have), len(want))
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add(uint32(0), random(300))
	f.Fuzz(func(t *testing.T, crc uint32, p []byte) {
		if got, want := Update(crc, p), crc32.Update(crc, crc32.IEEETable, p); got != want {
			t.Errorf("%d bytes: %#x, want %#x", len(p), got, want)
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{64, 256, 1024, 4096} {
		p := random(n)
		for _, way := range []struct {
			name string
			f    func(uint32, []byte) uint32
		}{{"ours", Update}, {"standard", func(c uint32, p []byte) uint32 { return crc32.Update(c, crc32.IEEETable, p) }}} {
			b.Run(fmt.Sprintf("%s/%d", way.name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				var c uint32
				for b.Loop() {
					c = way.f(c, p)
				}
			})
		}
	}
}
