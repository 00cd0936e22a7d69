package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// sysfs is a tree as Linux has it in /sys for RDMA devices: class/infiniband with a folder for each device, and
// class/infiniband_verbs; and dev/infiniband, for it is the same programs that look there. Programs read it through the preloaded library.
type sysfs struct {
	root    string
	devices []string
	opts    []verbs.Option
	ended   chan struct{}
	done    chan struct{}
}

// sysfsRefresh is how old counters of the tree may be.
const sysfsRefresh = time.Second

// newSysfs writes the tree of a daemon's devices and keeps counters, P_Keys and state current until stop.
func newSysfs(root, socket string) (*sysfs, error) {
	t := &sysfs{root: root, opts: []verbs.Option{verbs.WithSocket(socket)}, ended: make(chan struct{}), done: make(chan struct{})}
	infos, err := queryDevices("", t.opts)
	if err != nil {
		return nil, err
	}
	for n, i := range infos {
		t.devices = append(t.devices, i.name)
		for name, text := range i.sysfs(n) {
			if err := t.write(name, text); err != nil {
				return nil, err
			}
		}
		if err := t.refresh(i.name); err != nil {
			return nil, err
		}
		if err := t.special(fmt.Sprintf("dev/infiniband/uverbs%d", n)); err != nil {
			return nil, err
		}
	}
	go func() {
		defer close(t.done)
		for {
			select {
			case <-t.ended:
				return
			case <-time.After(sysfsRefresh):
				for _, d := range t.devices {
					_ = t.refresh(d) // a device that went away keeps its last state
				}
			}
		}
	}()
	return t, nil
}

func (t *sysfs) stop() {
	close(t.ended)
	<-t.done
}

// write replaces a file whole, so that no reader sees half of one.
func (t *sysfs) write(name, text string) error {
	file := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+"~", []byte(text+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(file+"~", file)
}

// special makes what is a character device. UCX wants it to be one and does not open it.
func (t *sysfs) special(name string) error {
	file := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.Symlink(os.DevNull, file)
}

// The counters that Linux has in counters; all others are in hw_counters.
var sysfsCounters = []string{
	"excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors", "multicast_rcv_packets",
	"multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets",
	"port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_data",
	"port_xmit_discards", "port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets",
	"VL15_dropped",
}

// refresh writes what changes: counters, P_Keys and the port's state.
func (t *sysfs) refresh(device string) error {
	ctx, err := verbs.Open(device, t.opts...)
	if err != nil {
		return err
	}
	defer ctx.Close()
	counters, err := ctx.QueryCounters()
	if err != nil {
		return err
	}
	port, err := ctx.QueryPort(1)
	if err != nil {
		return err
	}
	folder := "class/infiniband/" + device + "/ports/1/"
	values := make(map[string]string)
	for _, name := range sysfsCounters {
		values[folder+"counters/"+name] = "0"
	}
	for _, c := range counters {
		kind := "hw_counters/"
		if slices.Contains(sysfsCounters, c.Name) {
			kind = "counters/"
		}
		values[folder+kind+c.Name] = strconv.FormatUint(c.Value, 10)
	}
	for k := range int(port.PKeyTblLen) {
		key, err := ctx.QueryPKey(1, k)
		if err != nil {
			return err
		}
		values[fmt.Sprintf("%spkeys/%d", folder, k)] = fmt.Sprintf("%#04x", uint16(key))
	}
	values[folder+"state"] = fmt.Sprintf("%d: %s", port.State, strings.TrimPrefix(portStates[min(int(port.State), len(portStates)-1)], "PORT_"))
	values[folder+"phys_state"] = fmt.Sprintf("%d: %s", port.PhysState, physStates[port.PhysState])
	for name, text := range values {
		if err := t.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

var physStates = map[uint8]string{1: "Sleep", 2: "Polling", 3: "Disabled", 4: "PortConfigurationTraining", 5: "LinkUp", 6: "LinkErrorRecovery", 7: "Phy Test"}

// sysfs returns the files of the nth device that do not change.
func (i *deviceInfo) sysfs(n int) map[string]string {
	uverbs := fmt.Sprintf("class/infiniband_verbs/uverbs%d/", n)
	device := "class/infiniband/" + i.name + "/"
	port := device + "ports/1/"
	files := map[string]string{
		"class/infiniband_verbs/abi_version": "6",
		uverbs + "ibdev":                     i.name,
		uverbs + "abi_version":               "1",
		device + "node_type":                 "1: CA",
		device + "node_guid":                 guid(i.guid),
		device + "sys_image_guid":            guid(i.attr.SysImageGUID),
		device + "node_desc":                 "softnicd " + i.name,
		device + "fw_ver":                    zeroPadded(i.attr.FWVer[:]),
		device + "hw_rev":                    fmt.Sprintf("%#x", i.attr.HWVer),
		device + "board_id":                  "softnicd",
		device + "hca_type":                  "softnicd",
		port + "lid":                         "0x0",
		port + "lid_mask_count":              "0",
		port + "sm_lid":                      "0x0",
		port + "sm_sl":                       "0",
		port + "cap_mask":                    fmt.Sprintf("%#08x", i.port.PortCapFlags),
		port + "link_layer":                  "Ethernet",
		port + "rate":                        linkRate(&i.port),
	}
	for _, folder := range []string{device, uverbs} {
		for name, text := range map[string]string{
			"vendor": fmt.Sprintf("%#06x", i.attr.VendorID), "device": fmt.Sprintf("%#06x", i.attr.VendorPartID), "class": "0x020700",
			"subsystem_vendor": fmt.Sprintf("%#06x", i.attr.VendorID), "subsystem_device": fmt.Sprintf("%#06x", i.attr.VendorPartID),
			"numa_node": "-1", "local_cpus": onlineMask(), "local_cpulist": online(),
		} {
			files[folder+"device/"+name] = text
		}
	}
	netdev := zeroPadded(i.port.Netdev[:])
	files[device+"device/net/"+netdev+"/ifindex"] = fmt.Sprint(i.port.NetdevIfindex)
	for k := range int(i.port.GIDTblLen) {
		files[fmt.Sprintf("%sgids/%d", port, k)] = sysfsGID(ib.GID{})
	}
	for _, g := range i.gids {
		files[fmt.Sprintf("%sgids/%d", port, g.Index)] = sysfsGID(g.GID)
		files[fmt.Sprintf("%sgid_attrs/types/%d", port, g.Index)] = "RoCE v2"
		files[fmt.Sprintf("%sgid_attrs/ndevs/%d", port, g.Index)] = netdev
	}
	return files
}

// sysfsGID prints a GID as the kernel does: eight groups, no zeros left out.
func sysfsGID(g ib.GID) string {
	var b strings.Builder
	for k := 0; k < len(g); k += 2 {
		if k > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x%02x", g[k], g[k+1])
	}
	return b.String()
}

// linkRate prints width and speed as the kernel does. Speeds are those of a lane.
func linkRate(p *ib.PortAttr) string {
	lanes := map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[p.ActiveWidth]
	speeds := map[uint32]struct {
		tenths int // of Gb/s
		name   string
	}{1: {25, "SDR"}, 2: {50, "DDR"}, 4: {100, "QDR"}, 8: {100, "FDR10"}, 16: {140, "FDR"}, 32: {250, "EDR"}, 64: {500, "HDR"}, 128: {1000, "NDR"}}
	s, ok := speeds[p.ActiveSpeed]
	if !ok || lanes == 0 {
		lanes, s = 1, speeds[1]
	}
	rate := s.tenths * lanes
	if rate%10 != 0 {
		return fmt.Sprintf("%d.%d Gb/sec (%dX %s)", rate/10, rate%10, lanes, s.name)
	}
	return fmt.Sprintf("%d Gb/sec (%dX %s)", rate/10, lanes, s.name)
}

// online is the list of this machine's processors, every one of which is as near to the device as any other.
func online() string {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return "0"
	}
	return strings.TrimSpace(string(text))
}

// onlineMask is the same as a hexadecimal mask, groups of 32 bits first to last.
func onlineMask() string {
	var words []uint32
	for _, span := range strings.Split(online(), ",") {
		from, to, ranged := strings.Cut(span, "-")
		a, err1 := strconv.Atoi(from)
		b, err2 := a, error(nil)
		if ranged {
			b, err2 = strconv.Atoi(to)
		}
		if err1 != nil || err2 != nil || b >= 1<<16 {
			return "1"
		}
		for ; a <= b; a++ {
			for len(words) <= a/32 {
				words = append(words, 0)
			}
			words[a/32] |= 1 << (a % 32)
		}
	}
	groups := make([]string, len(words))
	for k, w := range words {
		groups[len(words)-1-k] = fmt.Sprintf("%08x", w)
	}
	return strings.Join(groups, ",")
}
