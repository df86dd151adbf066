"""XIDs come from the real kernel log, which systemd hands over as standard input."""

from __future__ import annotations

from pathlib import Path

from inside.checks import NotHereError, check
from inside.tools import EMULATED, configure, one, restart, total, until

XIDS = "coldplate_gpu_xid_errors_total"


@check("kernel log")
def reads_the_kernel_log() -> str:
    configure("sampling: {slow: 5s}\n")
    if not EMULATED and Path("/proc/driver/nvidia").exists():
        raise NotHereError("the kernel log is that of a machine with GPUs, whose operators would be alarmed")
    restart()
    slot = one("coldplate_gpu_info", gpu="2")["slot"]
    before = total(XIDS, gpu="2", xid="79")
    line = f"<4>NVRM: Xid (PCI:{slot.rpartition('.')[0]}): 79, pid=1, name=drill, GPU has fallen off the bus.\n"
    Path("/dev/kmsg").write_text(line)
    took = until("the XID is counted", lambda: total(XIDS, gpu="2", xid="79") == before + 1)
    return f"a line written to /dev/kmsg is XID 79 of GPU 2 (PCI {slot}) after {took:.1f} s"
