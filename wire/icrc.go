package wire

// ICRCSize is the bytes of the invariant CRC that ends every packet.
const ICRCSize = 4
