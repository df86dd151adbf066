"""The node as doctor may look at it: where its files are, what it is configured for, and its running agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from agent.backends.sysfs import PciDevice, list_names, nvidia_gpus, pci_devices, text
from agent.commands.doctor import agent_user
from agent.commands.doctor.agent_user import AgentUser
from agent.commands.doctor.agent_view import AgentView, ask
from agent.commands.doctor.diagnosis_line import Diagnosis, Examination
from agent.config.schema import Config
from agent.lib.http_target import HttpTarget
from agent.wiring.own_agent import own_agent
from agent.wiring.start_checks import parse_address

UNIT = "coldplate.service"
UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
                "lib/systemd/system")  # fmt: skip
"""Where systemd looks for units, the first of one name counts (systemd.unit(5))."""
TABLE = 1 << 24
"""Bytes of a table of procfs that are read: a node has thousands of connections."""


def whole(path: Path, most: int = TABLE) -> str:
    """The text of a file, however many reads that takes: procfs gives a page at a time. Raises OSError."""
    parts: list[bytes] = []
    with path.open("rb", buffering=0) as file:
        while most > 0 and (part := file.read(min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
    return b"".join(parts).decode("utf-8", "replace")


class SeenProcess(NamedTuple):
    """A process as everybody sees it."""

    pid: int
    name: str
    cgroup: str


class ExaminedNode:
    """`root` is where /dev, /etc, /run and /var are, `mono` tells monotonic seconds, `url` where the agent should be.

    `config` is what the configuration says, or the defaults where it cannot be used: `problem` then tells why.
    """

    def __init__(
        self,
        config: Config,
        problem: str = "",
        *,
        sysfs: Path = Path("/sys"),
        procfs: Path = Path("/proc"),
        root: Path = Path("/"),
        folder: Path = Path(),
        file: Path | None = None,
        url: str | None = None,
        login: Mapping[str, Any] | None = None,
        mono: Callable[[], float],
    ) -> None:
        self.config = config
        self.problem = problem
        self.sysfs = sysfs
        self.procfs = procfs
        self.root = root
        self.folder = folder
        self.file = file
        self.mono = mono
        own = own_agent(config, login)
        self.target = HttpTarget(url or own.urls[0], timeout=1.0, **((login or {}) if url else own.login))
        self.agent: AgentView | None = None
        """What the running agent says; None where none answers."""
        self.silence = "it was not asked"
        """Why it says nothing."""

    def meeting(self) -> Examination:
        """Asks the running agent, before anything else."""
        return Examination("agent", self.target.shown, self._meet)

    def _meet(self) -> Iterable[Diagnosis]:
        self.silence = f"{self.target.shown}: no answer"
        self.agent, self.silence = ask(self.target, self.mono)
        return ()

    @property
    def has_driver(self) -> bool:
        """Whether GPUs of this node are to be read."""
        return self.config.backends.devices not in ("synthetic", "none")

    @cached_property
    def unit(self) -> Path | None:
        """The file of the agent's unit; None where none is installed."""
        return self.unit_file(UNIT)

    def unit_file(self, name: str) -> Path | None:
        """The file of a unit of this name."""
        places = (self.root / folder / name for folder in UNIT_FOLDERS)
        return next((path for path in places if os.path.lexists(path)), None)

    @cached_property
    def processes(self) -> tuple[SeenProcess, ...]:
        """All that procfs shows. Those that end meanwhile are left out."""
        found = []
        for name in list_names(self.procfs):
            if name.isdigit():
                try:
                    known = text(self.procfs / name / "comm", 64), text(self.procfs / name / "cgroup", 1 << 14)
                except OSError:
                    continue
                found.append(SeenProcess(int(name), *known))
        return tuple(found)

    @cached_property
    def agent_pid(self) -> int | None:
        """A process of the agent's unit."""
        ours = (each.pid for each in self.processes if f"/{UNIT}" in each.cgroup)
        return min(ours, default=None)

    @cached_property
    def user(self) -> AgentUser:
        """Who the agent is: as it runs, else as its unit has it, else who asks, who would start it by hand."""
        if self.agent_pid is not None:
            told = agent_user.of_status(whole(self.procfs / str(self.agent_pid) / "status"))
            if told is not None:
                return told
        if self.unit is None:
            return agent_user.myself()
        return agent_user.of_accounts(self._lines("etc/passwd"), self._lines("etc/group"))

    def _lines(self, path: str) -> list[str]:
        try:
            return whole(self.root / path).splitlines()
        except OSError:
            return []

    @cached_property
    def pci(self) -> tuple[PciDevice, ...]:
        """The devices on the PCI bus."""
        return pci_devices(self.sysfs)

    @property
    def gpus(self) -> list[str]:
        """Addresses of NVIDIA's GPUs, except those that are passed through."""
        return nvidia_gpus(self.sysfs)

    @property
    def listen(self) -> list[tuple[str, int]]:
        """Host and port of each address that the agent listens on."""
        return [parse_address(each) for each in self.config.web.listen]
