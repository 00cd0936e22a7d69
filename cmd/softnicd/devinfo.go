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
	Name     string        `json:"hca_id"`
	GUID     string        `json:"node_guid"`
	Attr     ib.DeviceAttr `json:"device_attr"`
	Port     ib.PortAttr   `json:"port_attr"`
	GIDs     []gidInfo     `json:"gids"`
	firmware string
	netdev   string
}

type gidInfo struct {
	Index int    `json:"index"`
	GID   string `json:"gid"`
	Addr  string `json:"address"`
	Type  string `json:"type"`
}

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
			var opts []verbs.Option
			if socket != "" {
				opts = append(opts, verbs.WithSocket(socket))
			}
			infos, err := queryDevices(device, opts)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(c.OutOrStdout(), infos)
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
	infos := []*deviceInfo{}
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
	i := &deviceInfo{Name: name, GUID: guid(ctx.NodeGUID())}
	if i.Attr, err = ctx.QueryDevice(); err != nil {
		return nil, err
	}
	if i.Port, err = ctx.QueryPort(1); err != nil {
		return nil, err
	}
	table, err := ctx.QueryGIDTable(1)
	if err != nil {
		return nil, err
	}
	for _, e := range table {
		i.GIDs = append(i.GIDs, gidInfo{e.Index, e.GID.String(), e.GID.Addr().String(), e.Type.String()})
	}
	i.firmware, i.netdev = zeroPadded(i.Attr.FWVer[:]), zeroPadded(i.Port.Netdev[:])
	return i, nil
}

func zeroPadded(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// guid prints an EUI-64 in groups of four digits.
func guid(v uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

var portStates = [...]string{"PORT_NOP", "PORT_DOWN", "PORT_INIT", "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"}

func (i *deviceInfo) print(out io.Writer, verbose bool) {
	a, p := &i.Attr, &i.Port
	field := func(name string, value any) { fmt.Fprintf(out, "\t%-32s%v\n", name+":", value) }
	fmt.Fprintf(out, "hca_id:\t%s\n", i.Name)
	field("transport", "InfiniBand (0)")
	field("fw_ver", i.firmware)
	field("node_guid", i.GUID)
	field("sys_image_guid", guid(a.SysImageGUID))
	field("vendor_id", fmt.Sprintf("%#04x", a.VendorID))
	field("vendor_part_id", a.VendorPartID)
	field("hw_ver", fmt.Sprintf("%#x", a.HWVer))
	field("phys_port_cnt", a.PhysPortCnt)
	if verbose {
		i.printLimits(field)
	}
	port := func(name string, value any) { fmt.Fprintf(out, "\t\t\t%-24s%v\n", name+":", value) }
	fmt.Fprintf(out, "\t\tport:\t1\n")
	port("state", fmt.Sprintf("%s (%d)", portStates[min(int(p.State), len(portStates)-1)], p.State))
	port("max_mtu", fmt.Sprintf("%v (%d)", p.MaxMTU, p.MaxMTU))
	port("active_mtu", fmt.Sprintf("%v (%d)", p.ActiveMTU, p.ActiveMTU))
	port("sm_lid", 0)
	port("port_lid", 0)
	port("port_lmc", "0x00")
	port("link_layer", "Ethernet")
	port("netdev", fmt.Sprintf("%s (mtu %d)", i.netdev, p.LinkMTU))
	if verbose {
		port("max_msg_sz", fmt.Sprintf("%#x", p.MaxMsgSz))
		port("port_cap_flags", fmt.Sprintf("%#08x", p.PortCapFlags))
		port("bad_pkey_cntr", p.BadPKeyCntr)
		port("qkey_viol_cntr", p.QKeyViolCntr)
		port("pkey_tbl_len", p.PKeyTblLen)
		port("gid_tbl_len", p.GIDTblLen)
		port("active_width", fmt.Sprintf("(%d)", p.ActiveWidth))
		port("active_speed", fmt.Sprintf("(%d)", p.ActiveSpeed))
		port("phys_state", fmt.Sprintf("(%d)", p.PhysState))
		for _, g := range i.GIDs {
			port(fmt.Sprintf("GID[%3d]", g.Index), fmt.Sprintf("%s, %s", g.GID, g.Type))
		}
	}
	fmt.Fprintln(out)
}

func (i *deviceInfo) printLimits(field func(string, any)) {
	a := &i.Attr
	field("max_mr_size", fmt.Sprintf("%#x", a.MaxMRSize))
	field("page_size_cap", fmt.Sprintf("%#x", a.PageSizeCap))
	field("max_qp", a.MaxQP)
	field("max_qp_wr", a.MaxQPWR)
	field("device_cap_flags", fmt.Sprintf("%#08x", uint64(a.DeviceCapFlags)))
	field("max_sge", a.MaxSGE)
	field("max_sge_rd", a.MaxSGERD)
	field("max_inline_data", a.MaxInlineData)
	field("max_cq", a.MaxCQ)
	field("max_cqe", a.MaxCQE)
	field("max_mr", a.MaxMR)
	field("max_pd", a.MaxPD)
	field("max_qp_rd_atom", a.MaxQPRDAtom)
	field("max_res_rd_atom", a.MaxResRDAtom)
	field("max_qp_init_rd_atom", a.MaxQPInitRDAtom)
	field("atomic_cap", fmt.Sprintf("ATOMIC_HCA (%d)", a.AtomicCap))
	field("max_mw", a.MaxMW)
	field("max_mcast_grp", a.MaxMcastGrp)
	field("max_mcast_qp_attach", a.MaxMcastQPAttach)
	field("max_ah", a.MaxAH)
	field("max_srq", a.MaxSRQ)
	field("max_srq_wr", a.MaxSRQWR)
	field("max_srq_sge", a.MaxSRQSGE)
	field("max_pkeys", a.MaxPKeys)
	field("local_ca_ack_delay", a.LocalCAAckDelay)
	field("min_ack_timeout", fmt.Sprintf("%d us", a.MinAckTimeout))
	field("num_comp_vectors", a.NumCompVectors)
	field("cq moderation", fmt.Sprintf("count %d, period %d us", a.MaxCQModCount, a.MaxCQModPeriod))
	field("completion_timestamp_mask", fmt.Sprintf("%#016x", a.TimestampMask))
	field("hca_core_clock", fmt.Sprintf("%dkHZ", a.HCACoreClock))
}
