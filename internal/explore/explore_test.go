package explore

import "testing"

// Two threads that add one, by a load and a store each: some order loses an addition.
func TestFindsALostUpdate(t *testing.T) {
	_, err := All(func(w *World) []func() {
		n, done := 0, 0
		add := func(i int) func() {
			return func() {
				w.Step(i, "n", false)
				v := n
				w.Step(i, "n", true)
				n = v + 1
				if done++; done == 2 && n != 2 {
					w.Failf("n is %d", n)
				}
			}
		}
		return []func(){add(0), add(1)}
	})
	if err == nil {
		t.Error("no order loses an addition")
	}
}

// Steps on words of their own are run in one order, steps on one word in all.
func TestCountsOrders(t *testing.T) {
	for _, c := range []struct {
		words [2]string
		write bool
		want  int
	}{
		{[2]string{"a", "b"}, true, 1}, {[2]string{"a", "a"}, false, 1}, {[2]string{"a", "a"}, true, 20},
	} {
		orders, err := All(func(w *World) []func() {
			body := func(i int) func() {
				return func() {
					for range 3 {
						w.Step(i, c.words[i], c.write)
					}
				}
			}
			return []func(){body(0), body(1)}
		})
		if err != nil || orders != c.want {
			t.Errorf("%v: %d orders, want %d; %v", c.words, orders, c.want, err)
		}
	}
}

func TestFindsADeadlock(t *testing.T) {
	orders, err := All(func(w *World) []func() {
		flag := false
		return []func(){
			func() { w.Wait(0, "flag", func() bool { return flag }) },
			func() { w.Step(1, "flag", true) },
		}
	})
	if err == nil {
		t.Errorf("%d orders and none is stuck", orders)
	}
}
