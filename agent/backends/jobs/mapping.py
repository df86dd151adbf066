"""Files in which a scheduler's prolog recorded which job has which GPU.

dcgm-exporter's --hpc-job-mapping-dir: a file named by a GPU's index, a job id on each line. The /run/gpustat
of jobstats (Princeton): a file named by index, GPU UUID or MIG UUID, with job id and user number. One reader
handles both. An epilog that did not run leaves a stale file: processes and the kubelet take precedence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.backends.jobs.job_files import Patient, said
from agent.backends.jobs.problems import Problems

GPUSTAT = "/run/gpustat"
MAX_FILES = 1024
MAX_BYTES = 4096
MAX_LINES = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of one file: the device that the file is named by, a job, and its user if the line says."""

    path: str
    device: str
    job: str
    uid: int | None


class MappingFiles:
    """Reads the directories; those that do not exist are skipped."""

    def __init__(self, directories: Sequence[str], read: Patient, problems: Problems) -> None:
        self._directories = directories
        self._read = read
        self._problems = problems
        self.seen = False
        """Whether one of the directories was there at the last look."""
        self.failed = False
        """Whether a directory or file that existed at the last look could not be read."""
        self.reads = 0

    def entries(self) -> list[Entry]:
        """Every line of every file, in the order of the directories and then of the names."""
        self.seen = self.failed = False
        found: dict[Entry, None] = {}
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
                found.update(dict.fromkeys(parse(path, name, content)))
        return list(found)

    def _files(self, directory: str) -> list[tuple[str, str]]:
        try:
            listing = self._read.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.seen = True
            self._fail(directory, error)
            return []
        self.seen = True
        for name in listing.odd[:MAX_FILES]:
            self._problems.note("mapping", f"{directory}/{name}: is not a regular file")
            self.failed = True
        return [(f"{directory}/{name}", name) for name in listing.files[:MAX_FILES] if not name.startswith(".")]

    def _fail(self, path: str, error: OSError) -> None:
        self._problems.note("mapping", said(path, error))
        self.failed = True


def parse(path: str, device: str, content: bytes) -> Iterator[Entry]:
    """The entries of one file. A line is a job id, and after a blank perhaps a user number."""
    for line in content.decode("utf-8", "replace").splitlines()[:MAX_LINES]:
        words = line.split()
        if words:
            uid = int(words[1]) if len(words) > 1 and words[1].isascii() and words[1].isdigit() else None
            yield Entry(path, device, words[0], uid if uid is None or uid < 2**32 else None)


def scheduler_of(job: str) -> str:
    """Whose job it is: the files do not say, but Slurm's ids are numbers and those of PBS name its server."""
    number, dot, server = job.partition(".")
    if number.replace("_", "").isdigit() and not dot:
        return "slurm"
    return "pbs" if dot and number[:1].isdigit() and server else "mapping"
