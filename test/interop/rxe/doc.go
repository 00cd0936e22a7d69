// Package rxe holds softnicd to the packets of Linux's rdma_rxe, a kernel driver that speaks RoCEv2 over any network card.
//
// testdata has what two of its hosts said to each other, one file a scenario, captured as Ethernet frames. Each frame is
// taken apart and made again ([TestFrames]). Then an engine takes the place of one of the hosts, in virtual time: it is
// given the requests and has to answer as rxe answered ([TestResponder]), and it is asked for the operations that rxe was
// asked for, has to send what rxe sent, and completes them by rxe's answers ([TestRequester]). Unreliable connections and
// datagrams have requests alone ([TestUnreliable], [TestDatagrams]).
//
// Where the packets differ the table in differences_test.go has the packet and the reason, and the test fails when a line
// of it is not needed any more; docs/interop.md tells the same for people. What cannot be told from a capture, since the
// specification leaves it to the sender, is not compared: MigReq, and AckReq of requests.
//
// Package live, below, talks to the driver itself.
package rxe
