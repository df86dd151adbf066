"""Who the agent is, and what it may do with a file: doctor runs as root, or as a person, and sees something else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

READ, WRITE = 4, 2
"""The bits of permission, as chmod(1) counts them."""
OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of linux/capability.h."""
USER = "coldplate"


@dataclass(frozen=True, slots=True)
class AgentUser:
    """`uid` is None for the dynamic user of a unit without a user of its own: only what anybody may, it may."""

    name: str
    uid: int | None
    groups: frozenset[int] = frozenset()
    overrides: bool = False
    """Whether permissions do not count for it."""

    def may(self, want: int, status: os.stat_result) -> bool:
        """Whether it may READ, WRITE or both, by the mode alone: lists of access are not looked at."""
        if self.overrides:
            return True
        mode = stat.S_IMODE(status.st_mode)
        if self.uid is not None and self.uid == status.st_uid:
            mode >>= 6
        elif status.st_gid in self.groups:
            mode >>= 3
        return mode & want == want


def of_status(text: str) -> AgentUser | None:
    """The user of a process by its /proc/PID/status (proc(5)); None for a text that does not say."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        uid = int(fields["Uid"].split()[1])
        groups = frozenset(map(int, [fields["Gid"].split()[1], *fields.get("Groups", "").split()]))
        capabilities = int(fields.get("CapEff", "0"), 16)
    except (KeyError, ValueError, IndexError):
        return None
    return AgentUser(f"the agent (uid {uid})", uid, groups, bool(capabilities & OVERRIDES))


def of_accounts(passwd: Iterable[str], group: Iterable[str]) -> AgentUser:
    """The unit's user by the lines of /etc/passwd and /etc/group; a dynamic one where it has no account."""
    entry = next((line.split(":") for line in passwd if line.startswith(f"{USER}:")), [])
    if len(entry) < 4 or not (entry[2].isdigit() and entry[3].isdigit()):
        return AgentUser("a dynamic user", None)
    more = (line.rstrip("\n").split(":") for line in group)
    groups = {int(each[2]) for each in more if len(each) == 4 and USER in each[3].split(",") and each[2].isdigit()}
    return AgentUser(f"user {USER}", int(entry[2]), frozenset({int(entry[3]), *groups}))


def myself() -> AgentUser:
    """Who runs doctor."""
    uid = os.geteuid()
    return AgentUser("this user", uid, frozenset({os.getegid(), *os.getgroups()}), uid == 0)
