package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// deviceInfo is what devinfo says about a device.
type deviceInfo struct {
	name  string
	guid  uint64
	attr  ib.DeviceAttr
	port  ib.PortAttr
	gids  []verbs.GIDEntry
	pkeys []ib.PKey
}

// fact is one of the things that devinfo says, under the name that ibv_devinfo has for it: in words for people, and as a
// value for JSON.
type fact struct {
	name  string
	words string
	value any
}

// number is a fact that reads the same in both.
func number[T uint8 | uint16 | uint32](name string, v T) fact { return fact{name, fmt.Sprint(v), v} }

func newDevinfo() *cobra.Command {
	var socket, output, device string
	var verbose bool
	c := &cobra.Command{
		Use:   "devinfo",
		Short: "Print the daemon's devices and ports, as ibv_devinfo does",
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage(fmt.Errorf("-o %s: text or json expected", output))
			}
			infos, err := queryDevices(device, socketOption(socket))
			if err != nil {
				return err
			}
			if output == "json" {
				all := []map[string]any{}
				for _, i := range infos {
					all = append(all, i.forScripts())
				}
				return writeJSON(c.OutOrStdout(), all)
			}
			for _, i := range infos {
				i.print(c.OutOrStdout(), verbose)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "", "the daemon's control socket")
	f.StringVarP(&device, "ib-dev", "d", "", "only this device")
	f.BoolVarP(&verbose, "verbose", "v", false, "print all attributes and the GID table")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func queryDevices(only string, opts []verbs.Option) ([]*deviceInfo, error) {
	list, err := verbs.Devices(opts...)
	if err != nil {
		return nil, err
	}
	var infos []*deviceInfo
	for _, d := range list {
		if only != "" && d.Name != only {
			continue
		}
		i, err := queryDevice(d.Name, opts)
		if err != nil {
			return nil, err
		}
		infos = append(infos, i)
	}
	if only != "" && len(infos) == 0 {
		return nil, fmt.Errorf("the daemon has no device %s", only)
	}
	return infos, nil
}

func queryDevice(name string, opts []verbs.Option) (*deviceInfo, error) {
	ctx, err := verbs.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	defer ctx.Close()
	i := &deviceInfo{name: name, guid: ctx.NodeGUID()}
	if i.attr, err = ctx.QueryDevice(); err != nil {
		return nil, err
	}
	if i.port, err = ctx.QueryPort(1); err != nil {
		return nil, err
	}
	if i.gids, err = ctx.QueryGIDTable(1); err != nil {
		return nil, err
	}
	for k := range int(i.port.PKeyTblLen) {
		key, err := ctx.QueryPKey(1, k)
		if err != nil {
			return nil, err
		}
		i.pkeys = append(i.pkeys, key)
	}
	return i, nil
}

func zeroPadded(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// guid prints an EUI-64 in groups of four digits.
func guid(v uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

func (i *deviceInfo) print(out io.Writer, verbose bool) {
	fmt.Fprintf(out, "hca_id:\t%s\n", i.name)
	facts := i.identity()
	if verbose {
		facts = append(facts, i.limits()...)
	}
	for _, f := range facts {
		fmt.Fprintf(out, "\t%-32s%s\n", f.name+":", f.words)
	}
	fmt.Fprintf(out, "\t\tport:\t1\n")
	facts = i.portState()
	if verbose {
		facts = append(facts, i.portLimits()...)
		for _, g := range i.gids {
			facts = append(facts, fact{name: fmt.Sprintf("GID[%3d]", g.Index), words: fmt.Sprintf("%s, %s", g.GID, g.Type)})
		}
	}
	for _, f := range facts {
		fmt.Fprintf(out, "\t\t\t%-24s%s\n", f.name+":", f.words)
	}
	fmt.Fprintln(out)
}

// forScripts returns everything, under the same names.
func (i *deviceInfo) forScripts() map[string]any {
	values := func(lists ...[]fact) map[string]any {
		m := map[string]any{}
		for _, list := range lists {
			for _, f := range list {
				m[f.name] = f.value
			}
		}
		return m
	}
	port := values(i.portState(), i.portLimits())
	gids := []map[string]any{}
	for _, g := range i.gids {
		gids = append(gids, map[string]any{
			"index": g.Index, "gid": g.GID.String(), "address": g.GID.Addr().String(), "type": g.Type.String(), "ifindex": g.Ifindex,
		})
	}
	port["port"], port["gids"] = 1, gids
	m := values(i.identity(), i.limits())
	m["hca_id"], m["ports"] = i.name, []any{port}
	return m
}

// identity is what is always said of a device.
func (i *deviceInfo) identity() []fact {
	a := &i.attr
	return []fact{
		{"transport", "InfiniBand (0)", "InfiniBand"},
		{"fw_ver", zeroPadded(a.FWVer[:]), zeroPadded(a.FWVer[:])},
		{"node_guid", guid(i.guid), guid(i.guid)},
		{"sys_image_guid", guid(a.SysImageGUID), guid(a.SysImageGUID)},
		{"vendor_id", fmt.Sprintf("%#04x", a.VendorID), a.VendorID},
		number("vendor_part_id", a.VendorPartID),
		{"hw_ver", fmt.Sprintf("%#x", a.HWVer), a.HWVer},
		number("phys_port_cnt", a.PhysPortCnt),
	}
}

// limits are for those who want to know it all.
func (i *deviceInfo) limits() []fact {
	a := &i.attr
	return []fact{
		{"max_mr_size", fmt.Sprintf("%#x", a.MaxMRSize), a.MaxMRSize},
		{"page_size_cap", fmt.Sprintf("%#x", a.PageSizeCap), a.PageSizeCap},
		number("max_qp", a.MaxQP),
		number("max_qp_wr", a.MaxQPWR),
		{"device_cap_flags", fmt.Sprintf("%#08x", uint64(a.DeviceCapFlags)), uint64(a.DeviceCapFlags)},
		number("max_sge", a.MaxSGE),
		number("max_sge_rd", a.MaxSGERD),
		number("max_inline_data", a.MaxInlineData),
		number("max_cq", a.MaxCQ),
		number("max_cqe", a.MaxCQE),
		number("max_mr", a.MaxMR),
		number("max_pd", a.MaxPD),
		number("max_qp_rd_atom", a.MaxQPRDAtom),
		number("max_res_rd_atom", a.MaxResRDAtom),
		number("max_qp_init_rd_atom", a.MaxQPInitRDAtom),
		{"atomic_cap", fmt.Sprintf("ATOMIC_HCA (%d)", a.AtomicCap), a.AtomicCap},
		number("max_mw", a.MaxMW),
		number("max_mcast_grp", a.MaxMcastGrp),
		number("max_mcast_qp_attach", a.MaxMcastQPAttach),
		number("max_total_mcast_qp_attach", a.MaxTotalMcastQPAttach),
		number("max_ah", a.MaxAH),
		number("max_srq", a.MaxSRQ),
		number("max_srq_wr", a.MaxSRQWR),
		number("max_srq_sge", a.MaxSRQSGE),
		number("max_pkeys", a.MaxPKeys),
		number("local_ca_ack_delay", a.LocalCAAckDelay),
		{"min_ack_timeout_us", fmt.Sprint(a.MinAckTimeout), a.MinAckTimeout},
		number("num_comp_vectors", a.NumCompVectors),
		number("max_cq_mod_count", a.MaxCQModCount),
		number("max_cq_mod_period", a.MaxCQModPeriod),
		{"completion_timestamp_mask", fmt.Sprintf("%#016x", a.TimestampMask), a.TimestampMask},
		{"hca_core_clock", fmt.Sprintf("%dkHZ", a.HCACoreClock), a.HCACoreClock},
	}
}

var portStates = [...]string{"PORT_NOP", "PORT_DOWN", "PORT_INIT", "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"}

// portState is what is always said of a port. Path MTUs are bytes; the words have their code as well.
func (i *deviceInfo) portState() []fact {
	p := &i.port
	state := portStates[min(int(p.State), len(portStates)-1)]
	netdev := zeroPadded(p.Netdev[:])
	return []fact{
		{"state", fmt.Sprintf("%s (%d)", state, p.State), state},
		{"max_mtu", fmt.Sprintf("%v (%d)", p.MaxMTU, p.MaxMTU), p.MaxMTU.Bytes()},
		{"active_mtu", fmt.Sprintf("%v (%d)", p.ActiveMTU, p.ActiveMTU), p.ActiveMTU.Bytes()},
		{"sm_lid", "0", 0},
		{"port_lid", "0", 0},
		{"port_lmc", "0x00", 0},
		{"link_layer", "Ethernet", "Ethernet"},
		{"netdev", fmt.Sprintf("%s (mtu %d)", netdev, p.LinkMTU), netdev},
	}
}

func (i *deviceInfo) portLimits() []fact {
	p := &i.port
	return []fact{
		{"max_msg_sz", fmt.Sprintf("%#x", p.MaxMsgSz), p.MaxMsgSz},
		{"port_cap_flags", fmt.Sprintf("%#08x", p.PortCapFlags), p.PortCapFlags},
		number("bad_pkey_cntr", p.BadPKeyCntr),
		number("qkey_viol_cntr", p.QKeyViolCntr),
		number("pkey_tbl_len", p.PKeyTblLen),
		number("gid_tbl_len", p.GIDTblLen),
		{"active_width", fmt.Sprintf("(%d)", p.ActiveWidth), p.ActiveWidth},
		{"active_speed", fmt.Sprintf("(%d)", p.ActiveSpeed), p.ActiveSpeed},
		{"phys_state", fmt.Sprintf("(%d)", p.PhysState), p.PhysState},
		number("netdev_ifindex", p.NetdevIfindex),
		{"netdev_mtu", fmt.Sprint(p.LinkMTU), p.LinkMTU},
	}
}
