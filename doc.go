// Package softnicd carries what the softnicd binary brings along beside itself: the C sources of the drop-in libraries,
// which `softnicd libs` compiles. They stand in dropin, a folder without Go files, since a Go package may not have C files
// that are not its own.
//
// Applications in Go import package verbs, or verbs/embedded; ARCHITECTURE.md is the map of everything else.
package softnicd

import "embed"

// Sources are the C sources of the drop-in libraries, their version script and the list of symbols of the stubs, under the
// paths that they have in the repository.
//
//go:embed dropin/*.c dropin/*.h dropin/sysfs/*.c dropin/*.map dropin/*.tsv include/softnicd_abi.h
var Sources embed.FS
