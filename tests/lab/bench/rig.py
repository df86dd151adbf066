"""The node that is measured: eight GPUs and eight InfiniBand ports, none of them there.

The GPUs are the stand-in for libnvidia-ml.so.1, whose calls cost nothing. The ports are files in a
directory; a thread makes their counters grow as traffic would, because an agent might be cheaper where
nothing ever changes.
"""

from __future__ import annotations

import compileall
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import psutil

from tests.fakes.nvml import build
from tests.infiniband.conftest import FIXTURES, unpack_archive
from tests.lab.bench import client
from tests.lab.bench.processes import children, started
from tests.lab.bench.report import CannotRunError, Progress
from tests.servers import free_port

ARCHIVE = FIXTURES / "dgx-h100.txt"
PORTS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
"""Without the RoCE port of the archive."""

_ARCHIVE_GPUS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
_LIBRARY_GPUS = ("1b", "2b", "3b", "4b", "5b", "6b", "7b", "8b")
"""PCI buses of the GPUs, in the archive and in the stand-in library: they have to be the same GPUs."""

_RATES = {
    "counters/port_rcv_data": 4_000_000_000,  # words of four bytes: 16 GB/s
    "counters/port_xmit_data": 3_900_000_000,
    "counters/port_rcv_packets": 4_000_000,
    "counters/port_xmit_packets": 3_900_000,
    "counters/unicast_rcv_packets": 4_000_000,
    "counters/unicast_xmit_packets": 3_900_000,
    "counters/port_xmit_wait": 70_000,
    "hw_counters/rx_write_requests": 900_000,
    "hw_counters/rx_read_requests": 80_000,
}
"""Growth per second of what moves on a busy port."""

STEP = 0.1


def make_sysfs(directory: Path) -> Path:
    """The tree, with each GPU at the address that the stand-in library gives it."""
    text = ARCHIVE.read_text()
    for old, new in zip(_ARCHIVE_GPUS, _LIBRARY_GPUS, strict=True):
        text = text.replace(f"0000:{old}:00.0", f"0000:{new}:00.0")
    moved = directory / "sysfs.txt"
    moved.write_text(text)
    return unpack_archive(moved, directory / "sysfs", PORTS)


@contextmanager
def traffic(sysfs: Path) -> Iterator[None]:
    """Counters grow during the block. Each is written in place, in one call: the agent keeps its descriptor open."""
    over = threading.Event()

    def run() -> None:
        began = time.monotonic()
        while not over.wait(STEP):
            for file, (base, rate) in counters.items():
                os.pwrite(file.fileno(), b"%d\n" % (base + int(rate * (time.monotonic() - began))), 0)

    with ExitStack() as stack:
        counters = {}
        for port, (name, rate) in itertools.product(PORTS, _RATES.items()):
            path = sysfs / f"class/infiniband/{port}/ports/1/{name}"
            counters[stack.enter_context(path.open("r+b", buffering=0))] = int(path.read_text()), rate
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("agent", "alerts", "exporters")
NODE_EXPORTER = "prometheus-node-exporter"
NVITOP = "nvitop-exporter"

_SCRIPT = """\
import sys
from agent.cli import entry
sys.exit(entry())
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take, in seconds; `scrapes` is a number of scrapes a round and program."""

    warm: float = 8.0
    settle: float = 45.0
    """Until every lane was read and all series are there: each that comes makes the agent look at all of them again."""
    sampling: float = 60.0
    fast: float = 45.0
    scrapes: int = 200
    rounds: int = 5
    unscraped: float = 40.0
    repeats: int = 25
    fault: float = 8.0


QUICK = Pace(warm=3.0, settle=3.0, sampling=8.0, fast=6.0, scrapes=20, rounds=2, unscraped=5.0, repeats=5, fault=2.0)


@dataclass(frozen=True, slots=True)
class Daemon:
    pids: tuple[int, ...]
    """Its main process and its worker, if that runs: without a driver it ends and begins again."""
    address: client.Address
    folder: Path
    """With its configuration, its log and mostly its state."""

    def page(self, accept: str = client.OPENMETRICS) -> str:
        return client.scrape(self.address, accept=accept).text


class Rig:
    """A directory with everything in it, which is empty before."""

    def __init__(self, directory: Path, pace: Pace, progress: Progress) -> None:
        self.directory = directory
        self.pace = pace
        self.progress = progress
        self.site = directory / "site"
        for package in PACKAGES:
            shutil.copytree(ROOT / package, self.site / package, ignore=shutil.ignore_patterns("__pycache__"))
        # An installation is byte-compiled. Without byte-code both processes compile everything at each start, and
        # the compiler's memory stays with them.
        compileall.compile_dir(self.site, quiet=1)
        self.python = self._installed()
        (self.directory / "coldplate").write_text(_SCRIPT)
        (self.directory / "driver").mkdir()
        try:
            build.build(self.directory / "driver")
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise CannotRunError(f"the stand-in for the NVIDIA library cannot be compiled: {error}") from error
        self.sysfs = make_sysfs(self.directory)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(self.site),
            "LD_LIBRARY_PATH": str(self.directory / "driver"),
        }
        self.environment.pop(build.CONTROL, None)

    @classmethod
    @contextmanager
    def temporary(cls, pace: Pace, progress: Progress) -> Iterator[Rig]:
        with tempfile.TemporaryDirectory(prefix="coldplate-bench-") as directory:
            yield cls(Path(directory), pace, progress)

    def _installed(self) -> str:
        """Return a Python that has what an installation has; one for development does more when a process starts."""
        venv.create(self.directory / "venv", symlinks=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(self.directory / "venv")}))
        for requirement in distribution("coldplate").requires or ():
            if "extra ==" not in requirement:
                needed = distribution(re.split(r"[^\w-]", requirement)[0])
                for name in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
                    (packages / name).symlink_to(str(needed.locate_file(name)))
        compileall.compile_dir(packages, maxlevels=0, quiet=1)
        return str(self.directory / "venv" / "bin" / "python")

    @contextmanager
    def coldplate(
        self,
        fast: str = "1s",
        judging: bool = True,
        more: str = "",
        state: Path | None = None,
        program: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Iterator[Daemon]:
        """A daemon with eight GPUs and eight ports that samples at this period, and evaluates the rule pack or none.

        `more` are further sections of its configuration, `state` is its state directory, `program` is what Python runs
        in the place of the installed program, `environment` is laid over the rig's, and `folder` is that of a daemon
        that ended, for it to go on.
        """
        folder = folder or Path(tempfile.mkdtemp(dir=self.directory))
        config = folder / "coldplate.yaml"
        rules = "" if judging else "rules: {files: []}\n"
        config.write_text(f"sampling: {{fast: {fast}}}\nstate_dir: {state or folder}\n{rules}{more}")
        command = [
            self.python, *(program or [str(self.directory / "coldplate")]), "run", "--backend", "nvml",
            "--path.sysfs", str(self.sysfs), "--config.file", str(config), "--web.listen-address", "127.0.0.1:0",
        ]  # fmt: skip
        around = {**self.environment, **(environment or {})}
        with started(command, folder / "log", around, self.directory) as process:
            port = process.wait_for_port()
            yield Daemon((process.pid, *children(process.pid)), ("127.0.0.1", port), folder)

    @contextmanager
    def nvitop(self) -> Iterator[tuple[int, client.Address]]:
        """nvitop-exporter on the same library, at its default interval of a second: its process and address."""
        options = ["--bind", "127.0.0.1", "--port", "PORT", "--interval", "1", "--hostname", "node"]
        with self._peer(NVITOP, options, f"pip install {NVITOP}") as found:
            yield found

    @contextmanager
    def node_exporter(self) -> Iterator[tuple[int, client.Address]]:
        """node_exporter with its default collectors: its process and address."""
        options = ["--web.listen-address=127.0.0.1:PORT"]
        with self._peer(NODE_EXPORTER, options, f"apt-get install {NODE_EXPORTER}") as found:
            yield found

    @contextmanager
    def _peer(self, name: str, options: list[str], remedy: str) -> Iterator[tuple[int, client.Address]]:
        path = os.pathsep.join((str(Path(sys.executable).parent), *os.get_exec_path()))
        command = shutil.which(name, path=path)
        if command is None:
            raise CannotRunError(f"{name} is not installed: {remedy}")
        address = ("127.0.0.1", free_port())
        arguments = [command, *(each.replace("PORT", str(address[1])) for each in options)]
        with started(arguments, self.directory / f"{name}.log", self.environment, self.directory) as program:

            def serves(_log: str) -> bool:
                with socket.socket() as sock:
                    return sock.connect_ex(address) == 0

            program.wait_for(name, serves)
            yield program.pid, address

    def wait(self, seconds: float, what: str) -> None:
        """Let time pass, saying what for, and how busy the machine was with this and everything else."""
        self.progress.say(f"{what}, {seconds:.0f} s ...")
        psutil.cpu_percent()
        time.sleep(seconds)
        self.progress.say(f"  done; the machine was {psutil.cpu_percent():.0f} % busy")
