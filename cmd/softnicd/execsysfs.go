package main

import (
	"encoding/binary"
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
	devices []string // as the daemon lists them
	opts    []verbs.Option
	ended   chan struct{}
	done    chan struct{}
}

// sysfsRefresh is how old counters of the tree may be.
const sysfsRefresh = time.Second

// newSysfs writes the tree of a daemon's devices and keeps counters and state current until stop. With lids, ports have LIDs.
func newSysfs(root, socket string, lids bool) (*sysfs, error) {
	t := &sysfs{root: root, opts: []verbs.Option{verbs.WithSocket(socket)}, ended: make(chan struct{}), done: make(chan struct{})}
	infos, err := queryDevices("", t.opts)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	for n, i := range infos {
		t.devices = append(t.devices, i.name)
		if err := t.writeAll(i.sysfs(n, lids)); err != nil {
			return nil, err
		}
		if err := t.special(fmt.Sprintf("dev/infiniband/uverbs%d", n)); err != nil {
			return nil, err
		}
	}
	if err := t.refresh(); err != nil {
		return nil, err
	}
	go func() {
		defer close(t.done)
		for {
			select {
			case <-t.ended:
				return
			case <-time.After(sysfsRefresh):
				_ = t.refresh() // what the daemon does not tell stays as it was
			}
		}
	}()
	return t, nil
}

func (t *sysfs) stop() {
	close(t.ended)
	<-t.done
}

// writeAll writes files with these texts.
func (t *sysfs) writeAll(files map[string]string) error {
	for name, text := range files {
		if err := t.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// write replaces a file whole, so that no reader sees half of one, nor any other file beside it.
func (t *sysfs) write(name, text string) error {
	file, fresh := filepath.Join(t.root, name), filepath.Join(t.root, ".fresh")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(fresh, []byte(text+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

// special makes what is a character device. UCX wants it to be one and does not open it.
func (t *sysfs) special(name string) error {
	file := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.Symlink(os.DevNull, file)
}

// The counters that Linux has in counters, where a device has them or not; all others are in hw_counters. Those that only
// some devices have, such as unicast_rcv_packets, are not there: a zero would be a lie.
var sysfsCounters = []string{
	"excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
	"port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors",
	"port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets",
	"port_xmit_wait", "symbol_error", "VL15_dropped",
}

// refresh writes what changes: counters and the state of ports. It opens no device: nobody is to see a context come and go
// each time.
func (t *sysfs) refresh() error {
	status, err := verbs.Status(t.opts...)
	if err != nil {
		return err
	}
	for n, device := range t.devices {
		if n >= len(status.Devices) || status.Devices[n].Name != device {
			return fmt.Errorf("the daemon has no device %s any more", device)
		}
		counters, err := verbs.DeviceCounters(n, t.opts...)
		if err != nil {
			return err
		}
		if err := t.writeAll(sysfsCurrent(&status.Devices[n], counters)); err != nil {
			return err
		}
	}
	return nil
}

// sysfsCurrent returns the files of a device that change.
func sysfsCurrent(d *verbs.DeviceStatus, counters []verbs.Counter) map[string]string {
	port := "class/infiniband/" + d.Name + "/ports/1/"
	physical := "3: Disabled"
	if d.State == ib.PortActive {
		physical = "5: LinkUp"
	}
	files := map[string]string{
		port + "state":      fmt.Sprintf("%d: %s", d.State, strings.TrimPrefix(portStates[min(int(d.State), len(portStates)-1)], "PORT_")),
		port + "phys_state": physical,
	}
	for _, name := range sysfsCounters {
		files[port+"counters/"+name] = "0"
	}
	for _, c := range counters {
		kind := "hw_counters/"
		if slices.Contains(sysfsCounters, c.Name) {
			kind = "counters/"
		}
		files[port+kind+c.Name] = strconv.FormatUint(c.Value, 10)
	}
	return files
}

// sysfs returns the files of the nth device that do not change, in the formats of the kernel.
func (i *deviceInfo) sysfs(n int, lids bool) map[string]string {
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
		port + "lid":                         fmt.Sprintf("%#x", i.lid(lids)),
		port + "lid_mask_count":              "0",
		port + "sm_lid":                      "0x0",
		port + "sm_sl":                       "0",
		port + "cap_mask":                    fmt.Sprintf("%#08x", i.port.PortCapFlags),
		port + "link_layer":                  "Ethernet",
		port + "rate":                        linkRate(&i.port),
	}
	for _, folder := range []string{device, uverbs} {
		for name, text := range map[string]string{
			"vendor": fmt.Sprintf("%#04x", uint16(i.attr.VendorID)), "device": fmt.Sprintf("%#04x", uint16(i.attr.VendorPartID)), "class": "0x020700",
			"subsystem_vendor": fmt.Sprintf("%#04x", uint16(i.attr.VendorID)), "subsystem_device": fmt.Sprintf("%#04x", uint16(i.attr.VendorPartID)),
			"numa_node": "-1", "local_cpus": onlineMask(), "local_cpulist": online(),
		} {
			files[folder+"device/"+name] = text
		}
	}
	netdev := zeroPadded(i.port.Netdev[:])
	files[device+"device/net/"+netdev+"/ifindex"] = fmt.Sprint(i.port.NetdevIfindex)
	for k := range int(i.port.GIDTblLen) {
		files[fmt.Sprintf("%sgids/%d", port, k)] = ib.GID{}.String()
	}
	for k, key := range i.pkeys {
		files[fmt.Sprintf("%spkeys/%d", port, k)] = fmt.Sprintf("%#04x", uint16(key))
	}
	for _, g := range i.gids {
		files[fmt.Sprintf("%sgids/%d", port, g.Index)] = g.GID.String()
		files[fmt.Sprintf("%sgid_attrs/types/%d", port, g.Index)] = g.Type.String()
		files[fmt.Sprintf("%sgid_attrs/ndevs/%d", port, g.Index)] = netdev
	}
	return files
}

// lid is the LID that the port has for programs which have to have one: as dropin/lid.c makes it.
func (i *deviceInfo) lid(wanted bool) uint16 {
	for _, g := range i.gids {
		if a := g.GID.Addr(); wanted && a.Is4() {
			return binary.BigEndian.Uint16(g.GID[14:])
		}
	}
	return 0
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
