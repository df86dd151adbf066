"""The node as doctor examines it: its files, its configuration, the user of the agent, and the running agent.

Doctor runs as root or as a person, so it determines what the agent's user may do by the modes of files.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

from agent.backends.sysfs import list_names, nvidia_gpus, text
from agent.commands.doctor.agent_process import UNIT, AgentProcess
from agent.commands.doctor.doctor_finding import DoctorFinding
from agent.config.checks import listen_address
from agent.config.schema import Config
from agent.config.words import NOT_OF_NODE
from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.model import Reading, Snapshot
from agent.wiring.agent_client import AgentResponseError, SnapshotReader
from agent.wiring.identity import own_agent

RunCheck = Callable[["DoctorNode"], Iterable[DoctorFinding]]
PathAndCheck = tuple[object, RunCheck]
"""A check of a node, and the path that it reads, for who reads that it did not answer."""
READ, WRITE = 4, 2
"""The bits of permission, as chmod(1) counts them."""
OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of linux/capability.h."""
USER = "coldplate"


class AgentUser(Struct, frozen=True):
    """`uid` is None for the dynamic user of a unit without a user of its own: it has only the permissions of others."""

    name: str
    uid: int | None
    groups: frozenset[int] = frozenset()
    overrides: bool = False
    """Whether permissions do not count for it."""

    def may(self, want: int, status: os.stat_result) -> bool:
        """Return whether it may READ, WRITE or both, by the mode alone: lists of access are not looked at."""
        if self.overrides:
            return True
        mode = stat.S_IMODE(status.st_mode)
        if self.uid is not None and self.uid == status.st_uid:
            mode >>= 6
        elif status.st_gid in self.groups:
            mode >>= 3
        return mode & want == want


def user_of_status(text: str) -> AgentUser | None:
    """Return the user of a process by its /proc/PID/status (proc(5)); None for a text that does not say."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        uid = int(fields["Uid"].split()[1])
        groups = frozenset(map(int, [fields["Gid"].split()[1], *fields.get("Groups", "").split()]))
        capabilities = int(fields.get("CapEff", "0"), 16)
    except (KeyError, ValueError, IndexError):
        return None
    return AgentUser(f"the agent (uid {uid})", uid, groups, bool(capabilities & OVERRIDES))


def user_of_accounts(passwd: Iterable[str], group: Iterable[str]) -> AgentUser:
    """Return the unit's user by the lines of /etc/passwd and /etc/group; a dynamic one where it has no account."""
    entry = next((line.split(":") for line in passwd if line.startswith(f"{USER}:")), [])
    if len(entry) < 4 or not (entry[2].isdigit() and entry[3].isdigit()):
        return AgentUser("a dynamic user", None)
    group_entries = (line.rstrip("\n").split(":") for line in group)
    groups = {
        int(fields[2])
        for fields in group_entries
        if len(fields) == 4 and USER in fields[3].split(",") and fields[2].isdigit()
    }
    return AgentUser(f"user {USER}", int(entry[2]), frozenset({int(entry[3]), *groups}))


def current_user() -> AgentUser:
    uid = os.geteuid()
    return AgentUser("this user", uid, frozenset({os.getegid(), *os.getgroups()}), uid == 0)


BOUNDS = AnswerBounds(body=64 << 20)
"""A node of 72 GPUs and as many ports says some ten megabytes."""
DEADLINE_SECONDS = 2.0
SNAPSHOT = "/api/v1/snapshot"


class RunningAgent:
    """A snapshot of the running agent, `age` seconds old."""

    def __init__(self, snapshot: Snapshot, age: float) -> None:
        self.age = age
        self.reports = snapshot.reports
        self.readings: dict[str, list[Reading]] = {}
        for reading in snapshot:
            self.readings.setdefault(reading.metric.name, []).append(reading)

    def values(self, metric: str) -> list[float]:
        return [reading.value for reading in self.readings.get(metric, ())]

    @property
    def is_synthetic(self) -> bool:
        """Whether nothing that it says of GPUs and ports is real."""
        return "coldplate_synthetic_info" in self.readings

    @property
    def is_paused(self) -> bool:
        """Whether it has released the driver on request."""
        return "coldplate_driver_pause_end_timestamp_seconds" in self.readings

    def label_values(self, metric: str, label: str, value: float) -> Iterator[str]:
        """Return the label's value of each series that has this value."""
        matching = (reading.series for reading in self.readings.get(metric, ()) if reading.value == value)
        return (dict(series.all_labels).get(label, "") for series in matching)


def request_snapshot(target: HttpTarget, mono: Callable[[], float]) -> HttpAnswer:
    """Return what the agent answers, with any status. Raises HttpError."""
    with closing(HttpClient(target, BOUNDS, mono)) as client:
        return client.exchange(HttpRequest("GET", f"{target.path}{SNAPSHOT}"), mono() + DEADLINE_SECONDS)


def fetch_snapshot(target: HttpTarget, mono: Callable[[], float]) -> tuple[RunningAgent | None, str]:
    """Return the agent's snapshot, or None with the reason."""
    try:
        answer = request_snapshot(target, mono)
    except HttpError as error:
        return None, f"{target.shown}: {error}"
    if answer.status != 200:
        return None, f"{target.shown}: {SNAPSHOT} is answered with HTTP status {answer.status}"
    return parse_snapshot(answer.body, target.shown)


def parse_snapshot(body: bytes, where: str) -> tuple[RunningAgent | None, str]:
    """Return the snapshot in an answer of `where`."""
    try:
        sample = SnapshotReader().read(body)
        return RunningAgent(sample.snapshot, sample.age), ""
    except AgentResponseError as error:
        return None, f"{where}: what answers is not a coldplate agent of this version: {error}"


UNIT_FOLDERS = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
"""Where systemd looks for units, the first of one name counts (systemd.unit(5))."""
MAX_READ_BYTES = 1 << 24
"""Bytes read of a file of procfs: a node has thousands of connections."""


def read_procfs(path: Path, limit: int = MAX_READ_BYTES) -> str:
    """Return the text of a file, at most `limit` bytes. Raises OSError."""
    with path.open("rb") as file:
        return file.read(limit).decode("utf-8", "replace")


class ListedProcess(Struct, frozen=True):
    """A process as any user sees it."""

    pid: int
    name: str
    cgroup: str


def target_of_agent(config: Config, url: str | None, login: Mapping[str, Any] | None) -> HttpTarget:
    """Return where the node's agent answers: at `url`, or by its configuration. Raises ValueError for the URL."""
    own = own_agent(config, login)
    return HttpTarget(url or own.urls[0], timeout=1.0, **((login or {}) if url else own.login))


class DoctorNode(Struct, dict=True):
    """A node: `target` is where its agent should be, `root` where its /dev, /etc, /run and /var are.

    `config` is what the configuration says, or the defaults where it cannot be used: `problem` then says why.
    """

    config: Config
    target: HttpTarget
    mono: Callable[[], float]
    problem: str = ""
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    root: Path = Path("/")
    folder: Path = Path()
    file: Path | None = None
    agent: RunningAgent | None = None
    """What the running agent says; None where none answers."""
    no_answer_reason: str = "it was not asked"
    """Why it says nothing."""
    process: AgentProcess | None = None
    """The running agent whose configuration this is; None where none is seen, or another file was asked for."""
    config_doubt: str = ""
    """Why `config` may not be that of the process."""

    def query_agent(self) -> Iterable[DoctorFinding]:
        """Ask the running agent; what it says is in no finding yet."""
        self.no_answer_reason = f"{self.target.shown}: no answer"
        self.agent, self.no_answer_reason = fetch_snapshot(self.target, self.mono)
        return ()

    @property
    def has_driver(self) -> bool:
        """Whether GPUs of this node are to be read."""
        return self.config.backends.devices not in (*NOT_OF_NODE, "none")

    @cached_property
    def unit(self) -> Path | None:
        """The file of the agent's unit; None where none is installed."""
        return self.unit_file(UNIT)

    def unit_file(self, name: str) -> Path | None:
        places = (self.root / folder / name for folder in UNIT_FOLDERS)
        return next((path for path in places if os.path.lexists(path)), None)

    @cached_property
    def processes(self) -> tuple[ListedProcess, ...]:
        """All that procfs shows. Those that end meanwhile are left out."""
        listed = []
        for name in list_names(self.procfs):
            if name.isdigit():
                try:
                    comm_and_cgroup = (
                        text(self.procfs / name / "comm", 64),
                        text(self.procfs / name / "cgroup", 1 << 14),
                    )
                except OSError:
                    continue
                listed.append(ListedProcess(int(name), *comm_and_cgroup))
        return tuple(listed)

    @cached_property
    def connections(self) -> list[Any]:
        """The TCP sockets, as psutil lists them: with the process of each that this user may see."""
        of_process, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(self.procfs)
        try:
            return psutil.net_connections("tcp")
        finally:
            psutil.PROCFS_PATH = of_process

    @cached_property
    def agent_pid(self) -> int | None:
        pids = (process.pid for process in self.processes if f"/{UNIT}" in process.cgroup)
        return min(pids, default=None)

    @cached_property
    def user(self) -> AgentUser:
        """Who the agent is: as it runs, else as its unit has it, else who asks, who would start it by hand."""
        if self.agent_pid is not None:
            user = user_of_status(read_procfs(self.procfs / str(self.agent_pid) / "status"))
            if user is not None:
                return user
        if self.unit is None:
            return current_user()
        return user_of_accounts(self._lines("etc/passwd"), self._lines("etc/group"))

    def _lines(self, path: str) -> list[str]:
        try:
            return read_procfs(self.root / path).splitlines()
        except OSError:
            return []

    @property
    def gpus(self) -> list[str]:
        """Addresses of NVIDIA's GPUs, except those that are passed through."""
        return nvidia_gpus(self.sysfs)

    @property
    def listen(self) -> list[tuple[str, int]]:
        """Host and port of each address that the agent listens on."""
        return [listen_address(address) for address in self.config.web.listen]
