"""The GPUs' processes, read from procfs: each is examined once, and afterwards only recognised.

A process is distinguished from a later one with the same id by its start time, so the steady state is one read of
/proc/PID/stat for each. Nothing here lists all of /proc.
"""

import errno
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from msgspec import Struct, field
from msgspec.structs import replace

from agent.backends.jobs.cgroup import ENGINES, CgroupOwner, parse_cgroup
from agent.backends.jobs.environments import AskVariables, EnvironmentUnavailableError, ProcessEnvironments, UserNames
from agent.backends.jobs.job import Job, Scheduler, is_invalid_job_id, merge_jobs, to_label_value
from agent.backends.jobs.job_files import GONE_ERRNOS, REFUSED, AttributionProblems, ReadFile, describe_error
from agent.backends.protocol import DeviceError
from agent.broker.questions import job_variables
from agent.lib.proc_stat import ProcStat, parse_stat
from agent.model import Reason

REAL_USER, BOOT_TIME = b"Uid:", b"btime"
"""What a number stands behind in /proc/PID/status, and in /proc/stat (seconds since the epoch)."""


def number_after(data: bytes, word: bytes) -> int:
    """Return the first number in the line that begins with this word. Raises ValueError."""
    for line in data.split(b"\n"):
        if line.startswith(word):
            _, text, *_ = (*line.split(None, 2), b"")
            number = int(text)
            if not 0 <= number < 2**63:
                raise ValueError(f"{word.decode()} {number}")
            return number
    raise ValueError(f"no line {word.decode()}")


STAT, CGROUP, STATUS, NODE_STAT = 1024, 16 * 1024, 8 * 1024, 4 * 2**20
"""Most bytes read of each file."""

SERVERS = frozenset({"nvidia-cuda-mps", "nv-hostengine", "nvidia-persiste", "dcgm-exporter"})
"""Programs (by the 15 characters that the kernel keeps) that serve a GPU's users without being users themselves.

Anyone can give a program such a name, so it counts only beside something that users cannot choose.
"""

PARENTS = frozenset(
    ("systemd", "init", "sshd", "sshd-session", "login", "su", "sudo", "cron", "crond", "atd", "screen", "dockerd",
     "containerd", "containerd-shim", "conmon", "slurmd", "slurmstepd", "tini", "dumb-init")
)  # fmt: skip
"""Programs whose children have nothing to do with each other."""


class GpuProcessFacts(Struct, frozen=True):
    """One process of a GPU. `job`: None for a program that does not use the GPU. `host`: its HOSTNAME variable.

    `owner` is the number of its user, None if the node has no name for that user.
    """

    pid: int
    started: int
    job: Job | None
    owner: int | None = None
    host: str = ""
    hidden: str = ""
    """Why its environment could not be read; "" if it could."""
    late: bool = False
    """Whether that is because the read did not answer."""
    again: float = inf
    """When to look into it again, in monotonic seconds: what was hidden may become readable."""
    serves: bool = False
    """Whether its name says that it serves others, though it may be a job: it gives way to what its user runs."""
    within: tuple[str, str] | None = None
    """The cgroup that holds all of its scheduler's job, and the id that it names; None without a scheduler."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The schedulers' variables in its environment."""


NOT_SHOWN = (
    "does not exist, although the process uses the GPU: run the agent with "
    "hostPID, or point --path.procfs to the host's /proc, or remove hidepid"
)


def _explain(path: str, error: OSError | ValueError) -> tuple[str, DeviceError]:
    """Return the problem of attribution that an error is, and why the process at this path cannot be read."""
    if not isinstance(error, OSError):
        return "malformed", DeviceError(Reason.MALFORMED, f"{path}: {error}")
    if error.errno in REFUSED:
        return "unreadable", DeviceError(Reason.DENIED, describe_error(path, error))
    if error.errno == errno.ETIMEDOUT:
        return "unreadable", DeviceError(Reason.TIMEOUT, str(error.strerror))
    problem = "vanished" if error.errno in GONE_ERRNOS else "malformed"
    return problem, DeviceError(Reason.LOST, describe_error(path, error))


def _owner(where: CgroupOwner, uid: int) -> int | None:
    """Return the user's number. A container has users of its own, whose numbers say nothing about the node's."""
    if where.contained:
        return None
    return uid if where.uid is None else where.uid


class ProcessTable:
    """The processes that were on a GPU at the last look."""

    def __init__(
        self,
        procfs: str,
        schedulers: Sequence[Scheduler],
        plain: bool,
        trusted: Collection[str],
        *,
        read: ReadFile,
        ask: AskVariables,
        users: UserNames,
        problems: AttributionProblems,
        ticks: int,
        job_id_of: Callable[[CgroupOwner], str],
    ) -> None:
        """`plain` says whether what no scheduler started counts as a job, `trusted` names the schedulers whose
        variables count everywhere. `ask` is for environments that may not be read; `ticks` are the clock ticks of a
        second in /proc/PID/stat. `job_id_of` gives the id of the job that a scheduler's cgroup names."""
        self._procfs = procfs
        self._schedulers = schedulers
        self._trusted = trusted
        self._by_name = {scheduler.name: scheduler for scheduler in schedulers}
        self._keys = frozenset(name.encode("ascii") for s in schedulers for name in s.variables)
        self._plain_too = plain
        self._read = read
        self._environments = ProcessEnvironments(procfs, read, ask)
        self._users = users
        self._problems = problems
        self._ticks = ticks
        self._job_id_of = job_id_of
        self._processes: dict[int, GpuProcessFacts] = {}
        self._unseen: frozenset[int] = frozenset()
        self._boot: int | None = None
        self.missing: dict[int, DeviceError] = {}
        """Processes that this user may not read in procfs, that do not answer there, or that it did not show in two
        looks: then it shows another machine or container."""
        self.reads = 0

    def read_processes(self, pids: Iterable[int], mono: float) -> dict[int, GpuProcessFacts]:
        """Return those of the processes that can be seen; the others are noted. What is not asked for is forgotten."""
        before, self.missing = self._unseen, {}
        self._boot = None  # it moves when the clock is set
        processes: dict[int, GpuProcessFacts] = {}
        unseen: set[int] = set()
        for pid in pids:
            try:
                processes[pid] = self._process(pid, mono)
            except (OSError, ValueError) as error:
                unseen.add(pid)
                problem, device_error = _explain(f"{self._procfs}/{pid}", error)
                if pid not in before:
                    self._problems.record(problem, device_error.detail)
                if problem == "unreadable":
                    self.missing[pid] = device_error
                elif pid in before:
                    self.missing[pid] = DeviceError(Reason.LOST, f"{self._procfs}/{pid} {NOT_SHOWN}")
        self._unseen, self._processes = frozenset(unseen), processes
        return {pid: self._named(process, mono) for pid, process in processes.items()}

    def _named(self, process: GpuProcessFacts, mono: float) -> GpuProcessFacts:
        """Return the process with its user's name as now known: a directory server may have been unreachable."""
        job, owner = process.job, process.owner
        if job is None or owner is None:
            return process
        user = self._users.name(owner, mono) or job.user or str(owner)
        return process if user == job.user else replace(process, job=replace(job, user=user))

    def _process(self, pid: int, mono: float) -> GpuProcessFacts:
        stat = self._stat(pid)
        previous = self._processes.get(pid)
        if previous is not None and previous.started != stat.started:
            previous = None
        if previous is not None and mono < previous.again:
            return previous
        process = self._investigate(pid, stat, mono)
        if self._stat(pid).started != stat.started:
            raise ProcessLookupError(3, "replaced while it was read")
        if process.hidden and previous is None:
            self._problems.count("unreadable")
        return process

    def _investigate(self, pid: int, stat: ProcStat, mono: float) -> GpuProcessFacts:
        where = parse_cgroup(self._file(pid, "cgroup", CGROUP).decode("utf-8", "replace"), self._schedulers)
        uid = number_after(self._file(pid, "status", STATUS), REAL_USER)
        env: dict[str, str] = {}
        hidden, late, again = "", False, inf
        self.reads += 1
        try:
            env = self._variables_in(self._environments.read_variables(pid, stat.started, mono))
        except EnvironmentUnavailableError as error:
            hidden, late, again = str(error), error.late, mono + error.retry
            previous = self._processes.get(pid)
            if late and previous is not None and previous.started == stat.started:
                return previous
        job = self._job(pid, stat, where, env, uid)
        serves = stat.command in SERVERS
        if serves and (uid == 0 or where.service) and (job is None or job.plain):
            return GpuProcessFacts(pid, stat.started, None, again=again)
        within = (where.top, where.id) if where.top and job is not None and not job.plain else None
        job = None if job is None else self._dated(job, stat)
        host = env.get("HOSTNAME", "")
        return GpuProcessFacts(
            pid, stat.started, job, _owner(where, uid), host, hidden, late, again, serves, within, env
        )

    def _job(self, pid: int, stat: ProcStat, where: CgroupOwner, env: dict[str, str], uid: int) -> Job | None:
        """Return the first candidate with a valid id: nothing that a user writes can hide what the cgroup says."""
        if where.strange:
            text = to_label_value(where.strange)
            detail = f"{self._procfs}/{pid}/cgroup: {text} has an unknown format"
            self._problems.record_once("unknown_cgroup", where.top or text, detail)
        named = Job(where.scheduler, self._job_id_of(where)) if where.scheduler in self._by_name else None
        plain = self._plain(pid, stat, where, uid) if named is None else None
        # A Ray cluster belongs to its user: to that user's container or unit, or else to the user alone.
        owner = str(uid) if plain is None or where.scheduler == "session" else plain.id
        candidate = self._by_environment(where, env, owner) if named is None else self._completed(named, env)
        for job in (candidate, named, plain if self._plain_too else None):
            if job is None:
                continue
            if not is_invalid_job_id(job.id):
                return job
            text = f"{self._procfs}/{pid}: {to_label_value(job.id)!r:.80} is not a valid {job.scheduler} job id"
            self._problems.record_once("foul_id", job.id, text)
        return self._bare(pid, stat, uid) if self._plain_too else None

    def _variables_in(self, environ: bytes) -> dict[str, str]:
        """Return the schedulers' variables in a /proc/PID/environ, as the values of labels."""
        variables = job_variables(environ, self._keys).items()
        return {key.decode("ascii"): to_label_value(value.decode("utf-8", "replace")) for key, value in variables}

    def _completed(self, job: Job, env: Mapping[str, str]) -> Job:
        """Return a job that the cgroup names, which the kernel keeps, with the facts of an environment that names the
        same one: users write that."""
        completed = self._by_name[job.scheduler].job(env, job.id)
        return job if completed is None else merge_jobs(replace(job, id=completed.id), completed)

    def _by_environment(self, where: CgroupOwner, env: Mapping[str, str], owner: str) -> Job | None:
        """Return the job that only the environment names, of the most trusted scheduler; None if none claims it.

        It is believed below the scheduler's own daemons. `owner` distinguishes a cluster that a user runs from others.
        """
        for scheduler in self._schedulers:
            if scheduler.everywhere or scheduler.name == where.home or scheduler.name in self._trusted:
                job = scheduler.job(env, owner if scheduler.everywhere else "")
                if job is not None:
                    return job
        return None

    def _plain(self, pid: int, stat: ProcStat, where: CgroupOwner, uid: int) -> Job:
        """Return the job of a process that no scheduler started: a unit has one for each of its users."""
        if where.scheduler == "session":
            return self._bare(pid, stat, uid)
        job = where.id if where.contained else f"{where.id}@{_owner(where, uid)}"
        return Job(
            where.scheduler, job, name="" if where.scheduler in ENGINES else to_label_value(where.id), plain=True
        )

    def _bare(self, pid: int, stat: ProcStat, uid: int) -> Job:
        return Job("session", f"{self._session(pid, stat)}@{uid}", name=to_label_value(stat.command), plain=True)

    def _session(self, pid: int, stat: ProcStat) -> int:
        """Return the session that a process was started in: torchrun gives each rank a session of its own."""
        if stat.session != pid or stat.parent <= 1:
            return stat.session
        try:
            parent = self._stat(stat.parent)
        except (OSError, ValueError):
            return stat.session
        # A terminal multiplexer calls itself "tmux: server".
        unrelated = parent.command in PARENTS or parent.command.startswith("tmux")
        return stat.session if unrelated or parent.session <= 1 else parent.session

    def _dated(self, job: Job, stat: ProcStat) -> Job:
        """Return the job with its start: the process's own, or an earlier one in its environment, since the boot."""
        began = self._began(stat)
        if job.started is not None and self._boot is not None and job.started < self._boot:
            job = replace(job, started=None)
        return merge_jobs(job, Job("", "", started=began))

    def _began(self, stat: ProcStat) -> float | None:
        """Return when the process was started, in seconds since the epoch; None if the boot time is not known."""
        if self._boot is None:
            try:
                self.reads += 1
                self._boot = number_after(self._read(f"{self._procfs}/stat", NODE_STAT), BOOT_TIME)
            except (OSError, ValueError):
                return None
        return self._boot + stat.started / self._ticks

    def _stat(self, pid: int) -> ProcStat:
        return parse_stat(self._file(pid, "stat", STAT))

    def _file(self, pid: int, name: str, most: int) -> bytes:
        self.reads += 1
        return self._read(f"{self._procfs}/{pid}/{name}", most)
