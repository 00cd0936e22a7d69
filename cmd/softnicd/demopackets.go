package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/capture"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// readPackets reads what was sent from the capture, and checks it once more: every frame must parse and have the right
// ICRC.
func readPackets(path string, apps []*appReport) ([]packetRow, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Packets name their receiver only: the other one sent them.
	names := map[uint32][2]string{}
	for i, app := range apps {
		names[app.QPN] = [2]string{apps[1-i].Role, app.Role}
	}
	var rows []packetRow
	for p, err := range capture.Read(f) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if p.Direction != capture.Outbound {
			continue // the same packet, as it arrived
		}
		row, err := describe(p.Data, names)
		if err != nil {
			return nil, fmt.Errorf("%s: packet %d: %w", path, len(rows)+1, err)
		}
		row.At = time.Duration(p.Time.UnixNano())
		rows = append(rows, row)
	}
	// Each device writes what it sends in order; between the two the clock decides.
	slices.SortStableFunc(rows, func(a, b packetRow) int { return cmp.Compare(a.At, b.At) })
	for i := range slices.Backward(rows) {
		rows[i].At -= rows[0].At
	}
	return rows, nil
}

// describe takes an Ethernet frame of the capture apart.
func describe(frame []byte, names map[uint32][2]string) (packetRow, error) {
	d := wire.Datagram{IDKnown: true}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		copy(d.Source[:], ip.SrcIP.To16())
		copy(d.Dest[:], ip.DstIP.To16())
		d.ID = ip.Id
	case *layers.IPv6:
		copy(d.Source[:], ip.SrcIP)
		copy(d.Dest[:], ip.DstIP)
	default:
		return packetRow{}, errors.New("no IP packet")
	}
	udp, ok := p.TransportLayer().(*layers.UDP)
	if !ok {
		return packetRow{}, errors.New("no UDP datagram")
	}
	d.Bytes, d.SourcePort = udp.Payload, uint16(udp.SrcPort)
	var w wire.Packet
	if drop := wire.Parse(&w, &d); drop != wire.Accepted {
		return packetRow{}, fmt.Errorf("does not parse: %v", drop)
	}
	ends := names[uint32(w.BTH().DestQP())]
	row := packetRow{From: ends[0], To: ends[1], Opcode: w.Opcode.String(), PSN: uint32(w.PSN()), Bytes: w.Len}
	if aeth := wire.FindAETH(w.Header); aeth != nil {
		row.Note = aeth.Syndrome().String()
	}
	return row, nil
}

func printLadder(out io.Writer, r *demoReport) {
	steps := make([]trace.Step, len(r.Packets))
	for i, p := range r.Packets {
		steps[i] = trace.Step{
			Time: clock.Time(p.At), From: p.From, To: p.To, Label: p.Opcode, PSN: ib.NewPSN(p.PSN), Bytes: p.Bytes, Meaning: p.Note,
		}
	}
	fmt.Fprintf(out, "What crossed the %s link:\n", r.Link)
	fmt.Fprint(out, trace.Ladder{Endpoints: []string{"sender", "receiver"}}.Draw(steps))
}

func printCompletions(out io.Writer, rows []completionRow) {
	t := tablewriter.NewTable(out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{Symbols: tw.NewSymbols(tw.StyleLight)})),
		tablewriter.WithHeaderAutoFormat(tw.Off))
	t.Header("wr_id", "status", "opcode", "byte_len", "imm", "qp_num", "took")
	for _, c := range rows {
		opcode, length, imm := c.Opcode, fmt.Sprint(c.ByteLen), ""
		if opcode == "" {
			opcode, length = "-", "-" // not valid in an error completion
		}
		if c.Imm != nil {
			imm = fmt.Sprintf("%#x", *c.Imm)
		}
		_ = t.Append(c.WRID, c.Status, opcode, length, imm, fmt.Sprintf("%#06x", c.QPN), c.Took.Round(100*time.Nanosecond).String())
	}
	_ = t.Render()
}
