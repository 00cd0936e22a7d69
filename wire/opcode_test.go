package wire

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

func table(t testing.TB, name string) []map[string]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, r := range rows[1:] {
		m := make(map[string]string)
		for i, name := range rows[0] {
			m[name] = r[i]
		}
		out = append(out, m)
	}
	return out
}

func TestOpcodeTable(t *testing.T) {
	defined := make(map[Opcode]bool)
	for _, row := range table(t, "opcodes.csv") {
		t.Run(row["name"], func(t *testing.T) {
			v, err := strconv.ParseUint(row["opcode"], 0, 8)
			if err != nil {
				t.Fatal(err)
			}
			o := Opcode(v)
			defined[o] = true
			role := map[[2]bool]string{{true, false}: "req", {false, true}: "resp", {false, false}: "none"}
			headers := "BTH"
			if s := o.Headers().String(); s != "" {
				headers += "+" + s
			}
			got := map[string]string{
				"opcode":       row["opcode"],
				"name":         o.String(),
				"transport":    o.Service().String(),
				"role":         role[[2]bool{o.IsRequest(), o.IsResponse()}],
				"headers":      headers,
				"header_bytes": fmt.Sprint(o.HeaderLen()),
			}
			for k, v := range got {
				if v != row[k] {
					t.Errorf("%s: %q, want %q", k, v, row[k])
				}
			}
			if !o.Valid() {
				t.Error("not valid")
			}
			if n := BTHSize + o.Headers().Len(); n != o.HeaderLen() {
				t.Errorf("headers make %d bytes, HeaderLen says %d", n, o.HeaderLen())
			}
			checkPayload(t, o, row["payload"])
			checkNames(t, o, row["name"])
		})
	}
	for i := range 256 {
		o := Opcode(i)
		if o.Valid() != defined[o] {
			t.Errorf("%v: valid %v, in the table %v", o, o.Valid(), defined[o])
		}
		if !o.Valid() && (o.HeaderLen() != BTHSize || o.Headers() != 0 || o.IsRequest() || o.IsResponse() || o.Ends()) {
			t.Errorf("%v: undefined, but has properties", o)
		}
	}
}

func checkPayload(t *testing.T, o Opcode, rule string) {
	t.Helper()
	const pmtu = 1024
	bounds := map[string][2]int{
		"none": {0, 0}, "0..PMTU": {0, pmtu}, "0..PMTU(port)": {0, pmtu}, "1..PMTU": {1, pmtu},
		"=PMTU pad=0": {pmtu, pmtu}, "=8": {8, 8}, "=16 reserved zero bytes": {16, 16},
	}
	want, ok := bounds[rule]
	if !ok {
		t.Fatalf("unknown rule %q", rule)
	}
	r := o.Payload()
	if got := [2]int{r.Min(pmtu), r.Max(pmtu)}; got != want {
		t.Errorf("payload %v, want %v", got, want)
	}
	for n := range pmtu + 2 {
		if r.Fits(n, pmtu) != (n >= want[0] && n <= want[1]) {
			t.Errorf("%d bytes: fits %v", n, r.Fits(n, pmtu))
		}
	}
}

// checkNames compares the predicates with the words of the name.
func checkNames(t *testing.T, o Opcode, name string) {
	t.Helper()
	has := func(s string) bool { return strings.Contains(name, s) }
	several := has("_FIRST") || has("_MIDDLE") || has("_LAST")
	for what, pair := range map[string][2]bool{
		"IsFirst":        {o.IsFirst(), has("_FIRST")},
		"IsMiddle":       {o.IsMiddle(), has("_MIDDLE")},
		"IsLast":         {o.IsLast(), has("_LAST")},
		"IsOnly":         {o.IsOnly(), !several},
		"Ends":           {o.Ends(), !has("_FIRST") && !has("_MIDDLE")},
		"IsSend":         {o.IsSend(), has("_SEND_")},
		"IsWrite":        {o.IsWrite(), has("RDMA_WRITE")},
		"IsRead":         {o.IsRead(), has("READ_REQUEST")},
		"IsReadResponse": {o.IsReadResponse(), has("READ_RESPONSE")},
		"IsAtomic":       {o.IsAtomic(), has("COMPARE_SWAP") || has("FETCH_ADD")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v", what, pair[0])
		}
	}
}

func TestOpcodeConstants(t *testing.T) {
	for o, name := range map[Opcode]string{
		RCSendFirst: "RC_SEND_FIRST", RCSendOnlyInv: "RC_SEND_ONLY_WITH_INVALIDATE", RCFlush: "RC_FLUSH",
		RCAtomicWrite: "RC_ATOMIC_WRITE", RCReadResponseOnly: "RC_RDMA_READ_RESPONSE_ONLY", RCFetchAdd: "RC_FETCH_ADD",
		RCAcknowledge: "RC_ACKNOWLEDGE", RCWriteOnlyImm: "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE",
		UCSendFirst: "UC_SEND_FIRST", UCWriteOnlyImm: "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE",
		UDSendOnly: "UD_SEND_ONLY", UDSendOnlyImm: "UD_SEND_ONLY_WITH_IMMEDIATE", CNP: "CNP",
		XRCSendFirst: "XRC_SEND_FIRST", XRCSendOnlyInv: "XRC_SEND_ONLY_WITH_INVALIDATE", XRCFlush: "XRC_FLUSH",
		XRCAtomicWrite: "XRC_ATOMIC_WRITE", XRCAcknowledge: "XRC_ACKNOWLEDGE",
		0x15: "Opcode(0x15)", 0xff: "Opcode(0xff)",
	} {
		if o.String() != name {
			t.Errorf("%#x is %v, want %s", uint8(o), o, name)
		}
	}
	if s := Service(7).String(); s != "Service(7)" {
		t.Error(s)
	}
}
