package udp

import (
	"os"
	"testing"

	"github.com/softnic/softnicd/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }
