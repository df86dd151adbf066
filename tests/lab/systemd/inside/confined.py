"""What a process under the agent's own unit can see and do: a probe runs in its place, under the same lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from inside.tools import CheckError, check, sh, unit_file

PROBE = Path(__file__).with_name("probe.py")
FOUND = Path("/var/lib/coldplate/probe")
BESIDE = Path("/etc/systemd/system/coldplate-probe.service")
ALLOWED = {"read cgroup of 1", "read the configuration", "read kernel log handed over", "write its state",
           "write /tmp of its own", "socket AF_INET", "socket AF_INET6", "socket AF_NETLINK",
           "socket AF_UNIX"}  # fmt: skip
EMPTY = {"list /home", "list /root"}
"""Refused, or there is nothing in it."""


@check("sandbox")
def sees_what_it_needs() -> str:
    unit = re.sub(r"ExecStart=.*", f"ExecStart=/usr/bin/python3 {PROBE} {FOUND}", unit_file().read_text())
    unit = unit.replace("Type=notify", "Type=oneshot").replace("Restart=always", "Restart=no")
    # The same user as the unit has, which systemd takes from the unit's name.
    BESIDE.write_text(re.sub(r"DynamicUser=yes", "DynamicUser=yes\nUser=coldplate", unit))
    sh("systemctl", "daemon-reload")
    try:
        sh("systemctl", "start", BESIDE.name)
        seen = json.loads(FOUND.read_text())
    finally:
        BESIDE.unlink()
        FOUND.unlink(missing_ok=True)
        sh("systemctl", "daemon-reload")
    allowed = {name for name, result in seen.items() if result == "yes" or (result == "empty" and name not in EMPTY)}
    if allowed != ALLOWED:
        raise CheckError(f"too much: {sorted(allowed - ALLOWED)}, too little: {sorted(ALLOWED - allowed)}: {seen}")
    refused = sorted(name for name in seen if name not in allowed)
    return f"may: {', '.join(sorted(allowed))}; may not: {', '.join(refused)}"
