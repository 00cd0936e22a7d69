package wire

import "testing"

func TestBuffer(t *testing.T) {
	m := Memory(&Buffer{B: []byte("0123456789")})
	if err := m.Write([]byte("ab"), 3); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := m.Read(got, 2); err != nil || string(got) != "2ab5" || string(m.Bytes(2, 4)) != "2ab5" {
		t.Errorf("%q, %q, %v", got, m.Bytes(2, 4), err)
	}
}
