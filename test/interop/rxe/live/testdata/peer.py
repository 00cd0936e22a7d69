#!/usr/bin/env python3
"""The peer in the virtual machine: one queue pair, which does what lines on a TCP connection say.

A line is a JSON object with the name of a method of End as "op" and its arguments. The answer is {"ok": ...} or
{"error": ...}. A connection has its own End, and the end of a connection ends it.
"""
import hashlib, json, os, socket, sys, threading, time
import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.cq import CQ
from pyverbs.qp import QP, QPAttr, QPInitAttr, QPCap
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.addr import AHAttr, GlobalRoute, GID, AH
from pyverbs.wr import SGE, SendWR, RecvWR

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
TYPES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
QKEY = 0x11111111


class End:
    def open(self, gid, size):
        self.ctx = Context(name="rxe0")
        self.index = gid
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 512)
        self.mr = MR(self.pd, size, ACCESS | e.IBV_ACCESS_MW_BIND)
        self.qp = self.srq = self.ah = self.mw = None

    def make(self, kind, shared):
        if self.qp:
            self.qp.close()
        if self.srq:
            self.srq.close()
        self.srq = self.ah = None
        self.poll(1, 0)
        self.kind = kind
        init = QPInitAttr(qp_type=TYPES[kind], scq=self.cq, rcq=self.cq, cap=QPCap(128, 128, 1, 1, 0), sq_sig_all=0)
        if shared:
            self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=64, max_sge=1)))
            init = QPInitAttr(qp_type=TYPES[kind], scq=self.cq, rcq=self.cq, srq=self.srq, cap=QPCap(128, 0, 1, 0, 0), sq_sig_all=0)
        self.qp = QP(self.pd, init)
        gid = self.ctx.query_gid(port_num=1, index=self.index)
        return dict(qpn=self.qp.qp_num, gid=str(gid), rkey=self.mr.rkey, addr=self.mr.buf)

    def connect(self, peer, mtu, sq_psn, rq_psn, timeout, retry, rnr_retry, rnr_timer):
        a = QPAttr(port_num=1)
        a.qkey = QKEY
        a.qp_access_flags = ACCESS
        self.qp.to_init(a)
        a.sq_psn, a.rq_psn = sq_psn, rq_psn
        route = AHAttr(gr=GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.index, hop_limit=64), is_global=1, port_num=1)
        if self.kind == "ud":
            self.ah, self.remote = AH(self.pd, attr=route), peer["qpn"]
        else:
            a.dest_qp_num, a.ah_attr = peer["qpn"], route
            a.path_mtu = {1024: e.IBV_MTU_1024, 4096: e.IBV_MTU_4096}[mtu]
            a.max_rd_atomic = a.max_dest_rd_atomic = 8
            a.timeout, a.retry_cnt, a.rnr_retry, a.min_rnr_timer = timeout, retry, rnr_retry, rnr_timer
        self.qp.to_rtr(a)
        self.qp.to_rts(a)

    def fill(self, at, length, seed):
        if length:
            self.mr.write(hashlib.shake_128(seed.encode()).digest(length), length, at)

    def clear(self, at, length):
        if length:
            self.mr.write(bytes(length), length, at)

    def sum(self, at, length):
        return hashlib.sha256(self.mr.read(length, at) if length else b"").hexdigest()

    def word(self, at):
        return int.from_bytes(self.mr.read(8, at), "little")

    def set_word(self, at, value):
        self.mr.write(value.to_bytes(8, "little"), 8, at)

    def recv(self, n, at, length, wait_ms=0):
        def post():
            for _ in range(n):
                (self.srq.post_recv if self.srq else self.qp.post_recv)(RecvWR(num_sge=1, sg=[SGE(self.mr.buf + at, length, self.mr.lkey)], wr_id=900))
        if wait_ms:
            threading.Timer(wait_ms / 1000, post).start()
        else:
            post()

    def post(self, w):
        self.send(**w)

    def send(self, op_name, at, length, remote, rkey, imm, add, swap, wr_id):
        op = op_name
        w = SendWR(wr_id=wr_id, opcode=getattr(e, "IBV_WR_" + op), num_sge=1, send_flags=e.IBV_SEND_SIGNALED,
                   sg=[SGE(self.mr.buf + at, length, self.mr.lkey)])
        if op.startswith("RDMA"):
            w.set_wr_rdma(rkey, remote)
        if op.startswith("ATOMIC"):
            w.set_wr_atomic(rkey, remote, add, swap)
        if op.endswith("IMM"):
            w.imm_data = socket.htonl(imm)
        if op.endswith("INV"):
            w.imm_data = imm
        if self.ah:
            w.set_wr_ud(self.ah, self.remote, QKEY)
        self.qp.post_send(w)

    def poll(self, n, seconds):
        """Up to n completions; those that are there when the time is over."""
        got, until = [], time.time() + seconds
        while len(got) < n:
            k, wcs = self.cq.poll(min(16, n - len(got)))
            for w in wcs[:k]:
                key = w.imm_data if w.opcode == e.IBV_WC_RECV and not w.wc_flags & e.IBV_WC_WITH_IMM else socket.ntohl(w.imm_data)
                got.append(dict(wr_id=w.wr_id, status=w.status, bytes=w.byte_len, imm=key, source=w.src_qp))
            if not k:
                if time.time() > until:
                    break
                time.sleep(0.0005)
        return got

    def bind(self, at, length):
        self.mw = MW(self.pd, e.IBV_MW_TYPE_2)
        w = SendWR(opcode=e.IBV_WR_BIND_MW, num_sge=0, wr_id=500, send_flags=e.IBV_SEND_SIGNALED)
        w.set_bind_wr(self.mw, MWBindInfo(self.mr, self.mr.buf + at, length, e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ))
        self.qp.post_send(w)
        wc = self.poll(1, 20)
        if [x["status"] for x in wc] != [e.IBV_WC_SUCCESS]:
            raise RuntimeError("bind: %s" % wc)
        # pyverbs hides the key that its post_send made: the window's next variant.
        return w.rkey if hasattr(w, "rkey") else (self.mw.rkey & ~0xff) | ((self.mw.rkey + 1) & 0xff)

    def unbind(self):
        self.mw.close()
        self.mw = None

    def die(self):
        os._exit(9)


def serve(conn):
    end = End()
    f = conn.makefile("rw")
    for line in f:
        m = json.loads(line)
        try:
            r = dict(ok=getattr(end, m.pop("op"))(**m))
        except Exception as x:
            r = dict(error=repr(x))
        f.write(json.dumps(r) + "\n")
        f.flush()
    end.ctx.close()


s = socket.create_server(("", int(sys.argv[1])))
print("serving", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
