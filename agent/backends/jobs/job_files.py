"""Reads the small files that describe jobs: of procfs, the device minors of the driver, a prolog's mapping files."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from agent.backends.file_reader_pool import CaughtRead, FileReaderPool, UnansweredError
from agent.catalogue import BY_NAME
from agent.model import Node, Reading, Series

TIMEOUT_SECONDS = 0.25
"""Seconds to wait for one file: many processes may hang at once, in the driver of the same GPU."""

T = TypeVar("T")
ReadFile = Callable[[str, int], bytes]
"""From a path and the most bytes to read, to the content. Raises OSError."""

GONE_ERRNOS = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV})
"""Errors of a process that ended: its directory is gone, or reading its open file fails with ESRCH."""
REFUSED = frozenset({errno.EACCES, errno.EPERM})

# Not blocking: in a directory that others can write, a name may be a pipe without a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def read_file(path: str, most: int) -> bytes:
    """Return the file's content, at most `most` bytes of it. Raises OSError."""
    fd = os.open(path, _FLAGS)
    try:
        parts = []
        while most > 0 and (data := os.read(fd, most)):
            parts.append(data)
            most -= len(data)
        return b"".join(parts)
    finally:
        os.close(fd)


class DirectoryListing(NamedTuple):
    """What there is in a directory, in order: regular files, what must never be opened, and directories."""

    files: Sequence[str]
    odd: Sequence[str]
    folders: Sequence[str]


class TimedReader:
    """Reads files that may hang, such as the environment of a process that is stuck in the driver, holding its memory
    lock.

    A file that does not answer raises ETIMEDOUT, and is not read again until it answers. `mono` is the time of the
    look.
    """

    def __init__(self, read: ReadFile) -> None:
        self._pool = FileReaderPool("jobs", TIMEOUT_SECONDS)
        self._read_file = read
        self.mono = 0.0

    def __call__(self, path: str, most: int) -> bytes:
        """Return the file's content. Raises OSError."""
        read = CaughtRead(path, lambda path: self._read_file(path, most), Exception)
        return self._answer(read, path.rpartition("/")[0])

    def names(self, directory: str) -> DirectoryListing:
        """Return what there is in a directory. Raises OSError."""
        return self._answer(CaughtRead(directory, _listing_of, OSError), directory)

    def _answer(self, read: CaughtRead[T, Any], device: str) -> T:
        answer = self._pool.read(read, self.mono, device)
        if isinstance(answer, UnansweredError):
            raise TimeoutError(errno.ETIMEDOUT, answer.detail)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self._pool.close()


def _listing_of(directory: str) -> DirectoryListing:
    files: list[str] = []
    odd: list[str] = []
    folders: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            mode = _mode(entry)
            if stat.S_ISDIR(mode):
                folders.append(entry.name)
            elif stat.S_ISREG(mode):
                files.append(entry.name)
            else:
                odd.append(entry.name)
    return DirectoryListing(sorted(files), sorted(odd), sorted(folders))


def _mode(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_mode
    except OSError:
        return stat.S_IFREG  # reading it will say why not


def describe_error(path: str, error: OSError) -> str:
    return f"{path}: {os.strerror(error.errno or errno.EIO)}"


DEVICE_FOLDER = "driver/nvidia/gpus"
INFORMATION = 4096
"""Most bytes read of a file."""
MOST = 256


def read_minors(procfs: str, read: TimedReader) -> dict[int, str]:
    """Return UUIDs by minor number, except GPUs whose file cannot be read or names no UUID yet.

    The minors are those of the device files (/dev/nvidia3), which other programs use as names. The kernel module lists
    them in /proc/driver/nvidia/gpus/BUS/information, beside the UUID. They may differ from the indices of NVML, which
    follow the PCI bus.
    """
    uuids: dict[int, str] = {}
    try:
        folders = read.names(f"{procfs}/{DEVICE_FOLDER}").folders[:MOST]
    except OSError:
        return uuids
    for folder in folders:
        try:
            content = read(f"{procfs}/{DEVICE_FOLDER}/{folder}/information", INFORMATION)
        except OSError:
            continue
        fields = facts(content)
        number = fields.get("Device Minor", "")
        if number.isascii() and number.isdigit() and len(number) < 9 and "GPU UUID" in fields:
            uuids[int(number)] = fields["GPU UUID"]
    return uuids


def facts(content: bytes) -> dict[str, str]:
    """Return the lines `Name: value` of such a file."""
    lines = (line.partition(":") for line in content.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


GPUSTAT = "/run/gpustat"
MAX_FILES = 1024
MAX_BYTES = 4096
MAX_LINES = 64


class MappingEntry(Struct, frozen=True):
    """One line of one file: the device that the file is named by, a job, and its user if the line says."""

    path: str
    device: str
    job: str
    uid: int | None


class MappingFiles:
    """Reads the directories in which a scheduler's prolog records which job has which GPU.

    dcgm-exporter's --hpc-job-mapping-dir: a file named by a GPU's number, or by GPU.INSTANCE, a job id on each line
    (internal/pkg/transformation/hpc.go). The /run/gpustat of jobstats (Princeton): a file named by number, GPU UUID or
    MIG UUID, with job id and user number. An epilog that did not run leaves a stale file: processes and the kubelet
    take precedence. Directories that do not exist are skipped.
    """

    def __init__(self, directories: Sequence[str], read: TimedReader, problems: AttributionProblems) -> None:
        self._directories = directories
        self._read = read
        self._problems = problems
        self.directory_exists = False
        """Whether one of the directories was there at the last look."""
        self.failed = False
        """Whether a directory or file that existed at the last look could not be read."""
        self.reads = 0

    def entries(self) -> list[MappingEntry]:
        """Return every line of every file, in the order of the directories and then of the names."""
        self.directory_exists = self.failed = False
        entries: dict[MappingEntry, None] = {}
        for directory in self._directories:
            for path, name in self._files(directory):
                try:
                    self.reads += 1
                    content = self._read(path, MAX_BYTES)
                except FileNotFoundError:
                    continue  # an epilog removed it
                except OSError as error:
                    self._fail(path, error)
                    continue
                entries.update(dict.fromkeys(parse(path, name, content)))
        return list(entries)

    def _files(self, directory: str) -> list[tuple[str, str]]:
        try:
            listing = self._read.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.directory_exists = True
            self._fail(directory, error)
            return []
        self.directory_exists = True
        for name in listing.odd[:MAX_FILES]:
            self._problems.record("mapping", f"{directory}/{name}: is not a regular file")
            self.failed = True
        return [(f"{directory}/{name}", name) for name in listing.files[:MAX_FILES] if not name.startswith(".")]

    def _fail(self, path: str, error: OSError) -> None:
        self._problems.record("mapping", describe_error(path, error))
        self.failed = True


def parse(path: str, device: str, content: bytes) -> Iterator[MappingEntry]:
    """Yield the entries of one file. A line is a job id, and after a blank perhaps a user number."""
    for line in content.decode("utf-8", "replace").splitlines()[:MAX_LINES]:
        words = line.split()
        if words:
            uid = int(words[1]) if len(words) > 1 and words[1].isascii() and words[1].isdigit() else None
            yield MappingEntry(path, device, words[0], uid if uid is None or uid < 2**32 else None)


def scheduler_of(job: str) -> str:
    """Return whose job it is: the files do not say, but Slurm's ids are numbers and those of PBS name its server."""
    number, dot, server = job.partition(".")
    if number.replace("_", "").isdigit() and not dot:
        return "slurm"
    return "pbs" if dot and number[:1].isdigit() and server else "mapping"


log = logging.getLogger("coldplate.jobs")

PROBLEMS = (
    "vanished",  # a process ended while it was read
    "unreadable",  # a file of a process may not be read
    "malformed",  # a file or an answer could not be understood
    "unknown_cgroup",  # a cgroup path of a shape that is not known
    "foul_id",  # what stands in place of a job's id cannot be one
    "unknown_device",  # a pod or a mapping file names a device that this node does not have
    "too_many",  # more jobs or processes than are kept
    "kubelet",  # the kubelet did not answer
    "mapping",  # a mapping directory or file could not be read, or contradicts Slurm
)


MAX_SUBJECTS = 64
"""Most subjects of each problem that are remembered, so that each counts once."""

LEVELS = {"vanished": logging.DEBUG, "unknown_cgroup": logging.INFO}
"""How the first of a kind is logged where nothing on the node needs attention: processes end, supervisors differ."""


class AttributionProblems:
    """Counts the problems of attribution from 0, so that the first of a kind shows as an increase; logs each once."""

    def __init__(self) -> None:
        row = BY_NAME["coldplate_job_attribution_problems_total"]
        self._series = {problem: Series(row, Node(), (("problem", problem),)) for problem in PROBLEMS}
        self.counts = dict.fromkeys(PROBLEMS, 0)
        self._subjects: dict[str, set[str]] = {problem: set() for problem in PROBLEMS}

    def count(self, problem: str) -> None:
        self.counts[problem] += 1

    def record(self, problem: str, detail: str) -> None:
        self.counts[problem] += 1
        level = LEVELS.get(problem, logging.WARNING) if self.counts[problem] == 1 else logging.DEBUG
        log.log(level, "%s", detail, extra={"facts": {"problem": problem}})

    def record_once(self, problem: str, subject: str, detail: str) -> None:
        """Note a problem once for each subject, up to a limit: what lasts must not count again at each poll."""
        subjects = self._subjects[problem]
        if subject not in subjects and len(subjects) < MAX_SUBJECTS:
            subjects.add(subject)
            self.record(problem, detail)

    def readings(self) -> list[Reading]:
        return [Reading(self._series[problem], count) for problem, count in self.counts.items()]
